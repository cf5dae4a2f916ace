"""Renders a model's own chat template, keeping apart what the template wrote from what users wrote.

Wherever user text spells a special token, a mark (a Unicode noncharacter that occurs nowhere in the messages)
is put inside it before rendering; special tokens found in the rendered text then come from the template, and
the marks are taken out again. So the text is encoded as one, word boundaries included, and templates may trim
or test content.

The template is part of the model file that the operator chose, but still a stranger's code: it runs in
Jinja's immutable sandbox, and its output is bounded (its running time is not).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from infer_engine.model.errors import ModelUnsupported

#: Characters that a template may add to those of the messages.
MOST_ADDED_CHARACTERS = 100_000
_ROLE = re.compile(r"[a-z_]{1,32}")
_NONCHARACTERS = [*map(chr, range(0xFDD0, 0xFDF0)), *(chr(plane << 16 | 0xFFFE) for plane in range(1, 17))]


class ChatTemplateError(ValueError):
    """The messages do not fit the model's template; ``str()`` is for the client."""


class ChatTemplate:
    """``special_pattern`` matches the special tokens in one capturing group; ``named_tokens`` are texts that
    templates know by name, such as ``bos_token``."""

    def __init__(
        self,
        source: str,
        *,
        special_pattern: "re.Pattern[str] | None",
        named_tokens: Mapping[str, str],
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelUnsupported(f"the model's chat template is no valid template: {error}") from error
        self._special_pattern = special_pattern
        self._marking_pattern = special_pattern and re.compile(f"(?={special_pattern.pattern})(.)", re.DOTALL)
        self._context: dict[str, Any] = {
            **named_tokens,
            "tools": None,
            "documents": None,
            "raise_exception": _refuse,
            "strftime_now": _now,
        }

    def render(self, messages: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, bool]]:
        """Yield pieces of the prompt with True for a special token, False for text to be encoded as it is.

        Raises ChatTemplateError.
        """
        for index, message in enumerate(messages):
            if not _ROLE.fullmatch(message.get("role", "")):
                raise ChatTemplateError(
                    f"messages[{index}].role is {message.get('role', '')[:32]!r}; "
                    "allowed are small letters, such as system, user, assistant"
                )
        mark = _unused_character(messages)
        marked = [{key: self._mark(value, mark) for key, value in message.items()} for message in messages]
        text = self._run(marked)
        for piece in self._special_pattern.split(text) if self._special_pattern else [text]:
            special = self._special_pattern is not None and self._special_pattern.fullmatch(piece) is not None
            yield piece if special else piece.replace(mark, ""), special

    def _mark(self, text: str, mark: str) -> str:
        # After the first character of every spelling, overlapping ones included.
        return self._marking_pattern.sub(rf"\g<2>{mark}", text) if self._marking_pattern else text

    def _run(self, messages: list[dict[str, str]]) -> str:
        most = MOST_ADDED_CHARACTERS + 2 * sum(
            len(value) for message in messages for value in message.values()
        )
        parts: list[str] = []
        length = 0
        stream = self._template.generate(messages=messages, add_generation_prompt=True, **self._context)
        try:
            for part in stream:
                length += len(part)
                if length > most:
                    raise jinja2.TemplateError(f"it wrote over {most} characters")
                parts.append(part)
        except Exception as error:
            # The template is a stranger's code: whatever it raises is its verdict on these messages.
            raise ChatTemplateError(f"the model's chat template refused: {str(error)[:200]}") from error
        return "".join(parts)


def _unused_character(messages: Sequence[Mapping[str, str]]) -> str:
    used: set[str] = set()
    for message in messages:
        for value in message.values():
            used.update(value)
    for character in _NONCHARACTERS:
        if character not in used:
            return character
    raise ChatTemplateError("the messages hold every Unicode noncharacter; leave one out")


def _to_json(value: Any, indent: int | None = None) -> str:
    """Like the filter that templates are written against: plain JSON, not escaped for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _now(form: str) -> str:
    """Some templates tell the model what day it is."""
    return datetime.now().strftime(form)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
