"""What makes a constraint too expensive in ways that the grammar library does not count itself."""

import json
import math
from decimal import Decimal
from typing import Any, cast

from infer_engine.model.sampling import Constraint

#: Bytes of a schema or regular expression.
MOST_BYTES = 64 * 1024
#: Characters that a regular expression stands for when its counted repetitions are written out: they are
#: walked through at every token.
MOST_REPEATED = 10_000
#: The least common multiple of all ``multipleOf``, decimal points aside: an automaton has as many states.
MOST_MULTIPLE = 10_000
#: Properties of one object that it may have or not. Any of them may come next, so all are looked at at every
#: token, and of some more the library gives up at the first.
MOST_OPTIONAL = 400
#: Objects and lists inside one another.
MOST_DEPTH = 64
#: Let a schema change how the library reads it.
_REFUSED_KEYS = ("x-guidance",)


class ConstraintError(ValueError):
    """A constraint that cannot be used; the text is for the client."""


def check_limits(constraint: Constraint) -> None:
    """Raise ConstraintError."""
    size = len(constraint.source.encode())
    if size > MOST_BYTES:
        raise ConstraintError(f"it has {size:,} bytes; at most {MOST_BYTES:,} are allowed")
    if constraint.kind == "regex":
        check_regex(constraint.source)
        return
    try:
        schema = json.loads(constraint.source)
    except (ValueError, RecursionError):
        raise ConstraintError("it is not JSON") from None
    if not isinstance(schema, dict | bool):
        raise ConstraintError("a JSON schema is an object (or true)")
    multiple = _check_schema(schema, 1, 1)
    if multiple > MOST_MULTIPLE:
        raise ConstraintError(
            f"the least common multiple of its multipleOf is over {MOST_MULTIPLE:,}, the most allowed"
        )


def _check_schema(value: Any, depth: int, multiple: int) -> int:
    """The least common multiple of ``multiple`` and all ``multipleOf`` in it."""
    if depth > MOST_DEPTH:
        raise ConstraintError(f"it is nested more than {MOST_DEPTH} deep")
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            multiple = _check_schema(item, depth + 1, multiple)
    elif isinstance(value, dict):
        _check_optional(cast("dict[str, Any]", value))
        for key, item in cast("dict[str, Any]", value).items():
            if key in _REFUSED_KEYS:
                raise ConstraintError(f"{key} is not allowed in it")
            if key == "multipleOf" and type(item) in (int, float):
                multiple = min(math.lcm(multiple, _digits(item)), MOST_MULTIPLE + 1)
            elif key == "pattern" and isinstance(item, str):
                check_regex(item)
            elif key == "patternProperties" and isinstance(item, dict):
                for pattern in cast("dict[str, Any]", item):
                    check_regex(pattern)
            multiple = _check_schema(item, depth + 1, multiple)
    return multiple


def _check_optional(schema: dict[str, Any]) -> None:
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return
    named = {name for name in cast("list[Any]", required) if isinstance(name, str)}
    optional = len(cast("dict[str, Any]", properties).keys() - named)
    if optional > MOST_OPTIONAL:
        raise ConstraintError(
            f"an object in it has {optional:,} properties that are not required; at most {MOST_OPTIONAL:,} "
            "are allowed"
        )


def _digits(number: float) -> int:
    """12.50 is 125: the number without its decimal point, at least 1."""
    if isinstance(number, int):
        return max(1, min(abs(number), MOST_MULTIPLE + 1))
    if not math.isfinite(number):
        raise ConstraintError("multipleOf must be a finite number")
    return max(1, int("".join(map(str, Decimal(str(number)).normalize().as_tuple().digits))))


def check_regex(pattern: str) -> None:
    """Raise ConstraintError when it is too long written out. Whether it is a regular expression at all is the
    library's to say."""
    size = _Regex(pattern).written_out()
    if size > MOST_REPEATED:
        raise ConstraintError(
            f"a regular expression in it stands for more than {MOST_REPEATED:,} characters when its counted "
            "repetitions are written out; that is the most allowed"
        )


class _Regex:
    """Just enough of the syntax to count: escapes, classes, groups and counted repetitions."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def written_out(self) -> int:
        """How many single-character matches it stands for; as soon as there are too many, more than
        MOST_REPEATED."""
        groups: list[int] = [0]
        last = 0
        position = 0
        while position < len(self._pattern):
            char = self._pattern[position]
            position += 1
            if char == "(":
                groups[-1] += last
                groups.append(0)
                last = 0
            elif char == ")" and len(groups) > 1:
                last += groups.pop()
            elif char == "{" and (count := self._count(position)) is not None:
                last *= count[0]
                position = count[1]
            elif char not in "|?*+^$":
                if char == "\\":
                    position += 1
                elif char == "[":
                    position = self._class_end(position)
                groups[-1] += last
                last = 1
            if len(groups) > MOST_DEPTH or last + groups[-1] > MOST_REPEATED:
                return MOST_REPEATED + 1
        return sum(groups) + last

    def _class_end(self, position: int) -> int:
        """Behind a character class, nested ones included, that begins before ``position``."""
        depth = 1
        while position < len(self._pattern) and depth:
            char = self._pattern[position]
            position += 2 if char == "\\" else 1
            depth += (char == "[") - (char == "]")
        return position

    def _count(self, position: int) -> tuple[int, int] | None:
        """The larger number of ``m}``, ``m,}`` or ``m,n}``, and the position behind it."""
        end = self._pattern.find("}", position)
        numbers = self._pattern[position:end].split(",") if end >= 0 else []
        if not 1 <= len(numbers) <= 2 or not all(part.strip().isdecimal() or not part for part in numbers):
            return None
        # Written out, a number of more digits is too long anyway.
        largest = max((int(part.strip()[:9]) for part in numbers if part.strip()), default=1)
        return max(1, largest), end + 1
