"""Strict reading of the fields of a JSON request.

Every refusal names the field, what was given and what is allowed. Fields that nobody asks for are ignored, as
clients of the OpenAI API send many; which they were can be told.
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from infer_engine.gateway.errors import ApiError, invalid, shown


def parse_object(body: bytes) -> "Fields":
    """The JSON object in ``body``; 400 for everything else, duplicate keys and NaN included."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(
            None, f"the body is not UTF-8 (byte {error.start}); send JSON in UTF-8", code="invalid_json"
        ) from None
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise invalid(None, "the body's JSON is nested too deep", code="invalid_json") from None
    except ValueError as error:
        # JSONDecodeError, and the integers that Python refuses to convert for their length.
        raise invalid(None, f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(None, f"the body must be a JSON object, not {shown(value)}", code="invalid_json")
    return Fields(cast("dict[str, Any]", value))


class Fields:
    """The fields of one JSON object, with the path that error messages give them."""

    def __init__(self, values: dict[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path
        self._asked_for: set[str] = set()

    def unread(self) -> list[str]:
        """What was given, not as null, and nobody asked for: untrusted text."""
        return [
            name for name, value in self._values.items() if value is not None and name not in self._asked_for
        ]

    def name(self, field: str) -> str:
        return f"{self._path}.{field}" if self._path else field

    def raw(self, field: str) -> Any:
        """The value as it came; None when absent or null, which mean the same everywhere."""
        self._asked_for.add(field)
        return self._values.get(field)

    def refuse(self, field: str, allowed: str) -> NoReturn:
        name = self.name(field)
        if field not in self._values:
            raise invalid(name, f"{name} is required: {allowed}", code="missing_required_parameter")
        raise invalid(name, f"{name} must be {allowed}, not {shown(self._values[field])}")

    def integer(self, field: str, default: int | None, low: int, high: int) -> int | None:
        value = self.raw(field)
        if value is None:
            return default
        # A bool is an int in Python, and 5.0 is a float: neither is an integer here.
        if type(value) is not int or not low <= value <= high:
            self.refuse(field, f"an integer from {low:,} to {high:,}")
        return value

    def number(self, field: str, default: float, low: float, high: float, *, open_low: bool = False) -> float:
        value = self.raw(field)
        if value is None:
            return default
        allowed = f"a number {'above' if open_low else 'from'} {low:g} {'up ' if open_low else ''}to {high:g}"
        # JSON spells infinity too (1e999); comparing refuses it, and integers too long for a float.
        if type(value) not in (int, float) or not low <= value <= high or (open_low and value == low):
            self.refuse(field, allowed)
        return float(value)

    def boolean(self, field: str, default: bool) -> bool:
        value = self.raw(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(field, "true or false")
        return value

    def text(self, field: str, default: str | None, *, max_chars: int, min_chars: int = 0) -> str | None:
        value = self.raw(field)
        if value is None:
            return default
        if not isinstance(value, str) or not min_chars <= len(value) <= max_chars:
            self.refuse(field, f"a string of {min_chars:,} to {max_chars:,} characters")
        check_unicode(value, self.name(field))
        return value

    def choice(self, field: str, default: str | None, allowed: Sequence[str]) -> str | None:
        value = self.raw(field)
        if value is None:
            return default
        if not isinstance(value, str) or value not in allowed:
            self.refuse(field, "one of " + ", ".join(allowed))
        return value

    def object(self, field: str) -> "Fields | None":
        value = self.raw(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(field, "an object")
        return Fields(cast("dict[str, Any]", value), self.name(field))


def check_unicode(text: str, name: str) -> None:
    """Refuse lone surrogates: JSON can spell them, UTF-8 and every tokenizer cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid(
            name, f"{name} has a lone surrogate (half of a character) at position {error.start}"
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ApiError(400, f"the key {shown(key)} is given twice", code="invalid_json")
            seen.add(key)
    return values


def _no_constant(constant: str) -> NoReturn:
    raise ApiError(400, f"{constant} is not JSON; numbers must be finite", code="invalid_json")
