"""Where files that the console makes by itself go, and what they are called."""

import os
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_state_path


def new_file(fleet: str, at: float, directory: Path | None = None, ending: str = ".icr") -> Path:
    """A name for a new file in the working directory, or in the state directory where nothing can be
    written there. The fleet's name is a server's word: only plain characters of it are taken. OSError where
    there is no state directory either."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", fleet).strip("-.")[:48] or "fleet"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    if directory is None:
        directory = _working_directory() or user_state_path("infer-console", ensure_exists=True)
    path = directory / f"{name}-{stamp}{ending}"
    number = 1
    while path.exists():
        number += 1
        path = directory / f"{name}-{stamp}-{number}{ending}"
    return path


def open_new(path: Path) -> BinaryIO:
    """A new file for its owner alone: what an operator sees is not for everybody. OSError where it is there
    already, too."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def whole_new(path: Path) -> Generator[BinaryIO]:
    """As ``open_new``; what is not written whole does not stay, where it would be in the way of the next."""
    with open_new(path) as file:
        try:
            yield file
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def named_file(name: str) -> Path:
    """A file that an operator named; ValueError for a ``~`` whose home is not known."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name[:80]!r} was given: {error}") from error


def _working_directory() -> Path | None:
    """None where nothing can be written there, and where somebody removed it."""
    try:
        directory = Path.cwd()
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None
