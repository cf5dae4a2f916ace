"""Strict reading of the JSON files that lie beside a model's weights. They are untrusted."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported

Value = TypeVar("Value", int, float, str, bool)


@dataclass(frozen=True, slots=True)
class JsonObject:
    """One object of a file. ``label`` is what messages call it: the directory's and the file's name."""

    label: str
    values: dict[str, Any]

    def get(self, key: str, kind: type[Value], default: Value | None = None) -> Value:
        """The value of ``key``, ``default`` where it is missing or null; ModelUnsupported when it is missing
        without a default, or of another type."""
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelUnsupported(f"{self.label}: {key} is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            # An integer that no float holds is far out of every bound.
            value = float(value) if abs(value) < 1 << 63 else float("inf")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelUnsupported(
                f"{self.label}: {key} should be {kind.__name__}, not {type(value).__name__}"
            )
        return value

    def bounded(self, key: str, most: int, default: int | None = None) -> int:
        value = self.get(key, int, default)
        if not 1 <= value <= most:
            raise ModelUnsupported(f"{self.label}: {key} is {_shown(value)}, allowed is 1 to {most}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.get(key, float, default)
        if not 0 < value < 1e12:  # NaN fails too
            raise ModelUnsupported(f"{self.label}: {key} is {value}, allowed is a positive number")
        return value

    def object(self, key: str) -> "JsonObject | None":
        """The object at ``key``; None where it is missing, null or empty."""
        value = self.values.get(key)
        if not value:
            return None
        if not isinstance(value, dict):
            raise ModelUnsupported(f"{self.label}: {key} should be an object, not {type(value).__name__}")
        return JsonObject(f"{self.label}: {key}", value)

    def allow(self, key: str, *allowed: Any) -> None:
        """ModelUnsupported unless the value of ``key`` is one of ``allowed``, missing or null."""
        value = self.values.get(key)
        if value is not None and not any(value == each and type(value) is type(each) for each in allowed):
            raise ModelUnsupported(
                f"{self.label}: {key} is {_shown(value)}, allowed is {' or '.join(map(repr, allowed))}"
            )


def ensure_regular(path: Path) -> None:
    """Raises ModelUnsupported for what is there and no file: whoever opens a pipe waits for ever."""
    if path.exists() and not path.is_file():
        raise ModelUnsupported(f"{path.parent.name}/{path.name} is no regular file")


def read_json(path: Path, most_bytes: int) -> JsonObject:
    """Raises ModelUnavailable when the file cannot be read, ModelUnsupported when it is larger than
    ``most_bytes`` or not one JSON object."""
    label = f"{path.parent.name}/{path.name}"
    ensure_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise ModelUnavailable(f"cannot read {label}: {error.strerror}") from error
    if len(content) > most_bytes:
        raise ModelUnsupported(f"{label} is larger than {most_bytes:,} bytes")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelUnsupported(f"{label} is not valid JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise ModelUnsupported(f"{label} should hold an object, not {type(value).__name__}")
    return JsonObject(label, value)


def _shown(value: Any) -> str:
    """Short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 128:  # too long to be written out
        return "a huge number"
    text = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
    return text if len(text) <= 66 else text[:64] + "…"
