"""TOML files that an operator writes, whatever somebody made of them: bounded, and never waited for."""

import os
import tomllib
from pathlib import Path
from typing import Any


class TomlError(ValueError):
    """``str()`` says in one line what is wrong, without the file's name."""


def never_waiting(path: str, flags: int) -> int:
    """An opener: a pipe that nobody writes into is empty, one that says nothing yet cannot be read."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def read_text(path: Path, max_bytes: int) -> str:
    """The whole file. FileNotFoundError where there is none; TomlError where it cannot be read, is larger, or
    no UTF-8."""
    try:
        with open(path, "rb", opener=never_waiting) as file:
            raw = file.read(max_bytes + 1)  # a device may have no end
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TomlError(error.strerror or str(error)) from error
    if len(raw) > max_bytes:
        raise TomlError(f"larger than {max_bytes:,} bytes")
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TomlError(str(error)) from error


def parse_toml(text: str) -> dict[str, Any]:
    """TomlError for what is no TOML, and for numbers and depths that no file of ours has."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError("nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise TomlError(str(error)) from error
