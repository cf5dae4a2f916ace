"""What an answer must match, as far as somebody else's server can be asked for it.

Servers leave out what they do not know of a schema, without a word. So what a constraint needs has names, and
a server's ``lacks`` are some of them: such a request goes elsewhere, or is refused with the name.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

from infer_engine.model.sampling import Constraint

JSON, CHOICE, REGEX = "response_format", "structured_outputs.choice", "structured_outputs.regex"
#: Going on where a constrained answer was broken off. These servers follow a constraint from the first token
#: that they generate themselves, and would begin it anew.
CONTINUED = "a constrained answer, continued"
#: All of them, for a server that follows no constraint.
ALL = frozenset({JSON, CHOICE, REGEX})

#: Their values are schemas by name, and no schemas at all.
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"enum", "const", "default", "examples", "required", "type"})
_REMARKS = frozenset(
    {"title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions"}
    | {"deprecated", "readOnly", "writeOnly"}
)
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LENGTHS = ("minLength", "maxLength")
_COUNTS = ("minItems", "maxItems")
#: A count above this may be more than a grammar can hold.
MOST_COUNTED = 10_000
_UNIONS = ("anyOf", "oneOf", "$ref")


def with_keywords(*keywords: str) -> frozenset[str]:
    """Names of schemas that have these keywords."""
    return frozenset(f"{JSON} with {each}" for each in keywords)


@lru_cache(maxsize=64)
def needs(constraint: Constraint) -> frozenset[str]:
    """The names of what it takes to follow it."""
    if constraint.kind == "regex":
        return frozenset({REGEX if alternatives(constraint.source) is None else CHOICE})
    return frozenset({JSON}) | with_keywords(*_keywords(json.loads(constraint.source)))


def schema_of(constraint: Constraint) -> Any:
    return json.loads(constraint.source)


def alternatives(pattern: str) -> list[str] | None:
    """The texts that it matches, where it is nothing but texts; else None."""
    found = [""]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
            char = pattern[at : at + 1]
            if not char or char.isalnum():
                return None
        elif char == "|":
            found.append("")
            char = ""
        elif char in ".+*?()[]{}^$":
            return None
        found[-1] += char
        at += 1
    return found if all(found) else None


def grammar_of(texts: Iterable[str]) -> str:
    """In llama.cpp's notation: one of ``texts``."""
    return "root ::= " + " | ".join(f'"{_quoted(text)}"' for text in texts)


def _quoted(text: str) -> str:
    return re.sub(r'[\x00-\x1f"\\\x7f]', lambda found: f"\\x{ord(found[0]):02X}", text)


def _keywords(schema: Any) -> Iterator[str]:
    """What is used in it, by the name of the keyword; where a server leaves it out only together with
    others, by their names as well."""
    if isinstance(schema, list):
        for each in cast("list[Any]", schema):
            yield from _keywords(each)
    if not isinstance(schema, dict):
        return
    keys = cast("dict[str, Any]", schema)
    yield from keys
    yield from _together(keys)
    for key, value in keys.items():
        if key in _BY_NAME and isinstance(value, dict):
            yield from _keywords(list(cast("dict[str, Any]", value).values()))
        elif key not in _DATA:
            yield from _keywords(value)


def _together(schema: dict[str, Any]) -> Iterator[str]:
    told: Any = schema.get("type")
    types = {told} if isinstance(told, str) else set(cast("list[str]", told or []))
    if "format" in schema:
        yield f"format {str(schema['format'])[:20]}"
    if not types or "number" in types:
        yield from (f"{each} of a number" for each in _NUMBERS if each in schema)
    for each in _LENGTHS:
        if each in schema:
            yield from (f"{each} beside {other}" for other in ("pattern", "format") if other in schema)
            if "string" not in types:
                yield f"{each} without the type string"
    if "items" not in schema or "prefixItems" in schema:
        yield from (f"{each} without items" for each in _COUNTS if each in schema)
    yield from (f"{each} above {MOST_COUNTED:,}" for each in _COUNTS if _count(schema, each) > MOST_COUNTED)
    if "items" in schema and "prefixItems" in schema:
        yield "prefixItems beside items"
    several: Any = schema.get("allOf")
    if isinstance(several, list) and len(cast("list[Any]", several)) > 1:
        yield "allOf of several"
    yield from _beside_unions(schema)
    required: Any = schema.get("required")
    properties: Any = schema.get("properties") or {}
    if isinstance(required, list) and not set(map(str, cast("list[Any]", required))) <= set(properties):
        yield "required of what properties does not name"


def _count(schema: dict[str, Any], name: str) -> float:
    told: Any = schema.get(name)
    return told if isinstance(told, int | float) else 0


def _beside_unions(schema: dict[str, Any]) -> Iterator[str]:
    for each in _UNIONS:
        if each in schema and set(schema) - _REMARKS - {each, "type"}:
            yield f"{each} beside other keywords"
