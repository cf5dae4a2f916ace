"""Reading what an answer must match: ``response_format`` as in the OpenAI API, ``structured_outputs`` as in
vLLM since 0.12."""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from infer_engine.gateway.errors import invalid, shown
from infer_engine.gateway.fields import Fields, check_unicode
from infer_engine.model.constraint_limits import MOST_BYTES
from infer_engine.model.grammar import json_object
from infer_engine.model.sampling import Constraint

MAX_CHOICES = 256
MAX_NAME_CHARS = 64
_FORMATS = ("text", "json_object", "json_schema")
_KINDS = ("json", "json_object", "regex", "choice")


@dataclass(frozen=True, slots=True)
class AskedConstraint:
    """``field`` is what an error about it names."""

    constraint: Constraint
    field: str


def read_constraint(fields: Fields) -> AskedConstraint | None:
    """Raise ApiError (400). Whether the constraint can be compiled is found out later, in a thread."""
    formatted = _response_format(fields)
    structured = _structured_outputs(fields)
    if formatted is not None and structured is not None:
        raise invalid(
            "structured_outputs",
            "structured_outputs and response_format constrain the answer; give one of them",
        )
    return formatted or structured


def _response_format(fields: Fields) -> AskedConstraint | None:
    asked = fields.object("response_format")
    if asked is None:
        return None
    kind = asked.choice("type", None, _FORMATS)
    if kind is None:
        asked.refuse("type", "one of " + ", ".join(_FORMATS))
    if kind == "text":
        return None
    if kind == "json_object":
        return AskedConstraint(json_object(), asked.name("type"))
    named = asked.object("json_schema")
    if named is None:
        asked.refuse("json_schema", 'an object {"name": …, "schema": …}')
    # Said by the OpenAI API to be needed, and of no use here.
    named.text("name", None, max_chars=MAX_NAME_CHARS)
    named.boolean("strict", True)
    schema: Any = named.raw("schema")
    if not isinstance(schema, dict):
        named.refuse("schema", "a JSON schema (an object)")
    return _schema(cast("dict[str, Any]", schema), named.name("schema"))


def _structured_outputs(fields: Fields) -> AskedConstraint | None:
    asked = fields.object("structured_outputs")
    if asked is None:
        return None
    for unsupported in ("grammar", "structural_tag", "whitespace_pattern"):
        if asked.raw(unsupported) is not None:
            _refuse_kind(asked.name(unsupported))
    given = [kind for kind in _KINDS if asked.raw(kind) not in (None, False)]
    if len(given) != 1:
        raise invalid(
            "structured_outputs",
            f"structured_outputs must have exactly one of {', '.join(_KINDS)}; {len(given)} were given",
        )
    kind, name = given[0], asked.name(given[0])
    if kind == "json_object":
        asked.boolean(kind, False)
        return AskedConstraint(json_object(), name)
    if kind == "regex":
        pattern = asked.text(kind, None, min_chars=1, max_chars=MOST_BYTES) or ""
        return AskedConstraint(Constraint(kind="regex", source=pattern), name)
    if kind == "choice":
        return AskedConstraint(Constraint(kind="regex", source=_alternatives(asked)), name)
    value: Any = asked.raw(kind)
    if isinstance(value, str):
        check_unicode(value, name)
        return AskedConstraint(Constraint(kind="json_schema", source=value), name)
    if not isinstance(value, dict):
        asked.refuse(kind, "a JSON schema (an object, or a string of one)")
    return _schema(cast("dict[str, Any]", value), name)


def _refuse_kind(name: str) -> NoReturn:
    raise invalid(
        name, f"{name} is not supported; the kinds allowed are {', '.join(_KINDS)}", code="unsupported_value"
    )


def _schema(schema: dict[str, Any], name: str) -> AskedConstraint:
    try:
        source = json.dumps(schema)
    except RecursionError:
        raise invalid(name, f"{name} is nested too deep") from None
    # Half characters are spelled out in ASCII here, and would be text again in the grammar.
    if re.search(r"\\ud[89a-f]", source):
        check_unicode(json.dumps(schema, ensure_ascii=False), name)
    return AskedConstraint(Constraint(kind="json_schema", source=source), name)


def _alternatives(asked: Fields) -> str:
    value: Any = asked.raw("choice")
    allowed = f"a list of 1 to {MAX_CHOICES} different strings, none of them empty"
    if not isinstance(value, list):
        asked.refuse("choice", allowed)
    choices = cast("list[Any]", value)
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise invalid(asked.name("choice"), f"choice must be {allowed}; {len(choices):,} were given")
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise invalid(asked.name("choice"), f"choice must be {allowed}; one of them is {shown(choice)}")
        check_unicode(choice, asked.name("choice"))
    return "|".join(_literal(choice) for choice in dict.fromkeys(choices))


def _literal(text: str) -> str:
    """As a regular expression that matches nothing else. Python's own ``re.escape`` escapes more than other
    dialects allow."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&\-~])", r"\\\1", text)
