"""Which requests a command is for: a condition on their rows, such as ``tenant=acme and age_s>60``. Pure."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infer_engine.protocol import RequestRow

MAX_CHARS = 500
MAX_CONDITIONS = 10

WORDS = ("id", "tenant", "tier", "replica", "state", "phase", "waiting_reason", "behind")
NUMBERS = (
    "age_s",
    "queue_wait_s",
    "ttft_s",
    "prompt_tokens",
    "generated_tokens",
    "computed_tokens",
    "cached_tokens",
    "max_tokens",
    "kv_blocks",
    "preemptions",
)
FLAGS = ("synthetic",)
#: What stands for a field that a row does not have.
NONE = "none"

_CONDITION = re.compile(r"\s*([a-z_]+)\s*(!=|<=|>=|=|<|>)\s*([^\s<>=!]+)\s*")
_AND = re.compile(r"\s+and\s+")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class SelectionError(ValueError):
    """``str()`` says what was given and what is allowed."""


@dataclass(frozen=True, slots=True)
class Condition:
    field: str
    sign: str
    value: str | float | bool | None

    def holds(self, row: RequestRow) -> bool:
        """What a row does not have is neither less nor more than anything."""
        found = getattr(row, self.field)
        if self.sign == "=":
            return found == self.value
        if self.sign == "!=":
            return found != self.value
        return found is not None and _ORDERS[self.sign](found, self.value)


@dataclass(frozen=True, slots=True)
class Selection:
    conditions: tuple[Condition, ...]

    def selects(self, row: RequestRow) -> bool:
        """Of live requests only: what has finished is beyond every command."""
        return row.state != "finished" and all(condition.holds(row) for condition in self.conditions)


def parse_selection(text: str) -> Selection:
    """``FIELD SIGN VALUE``, several joined by ``and``. SelectionError for anything else."""
    if len(text) > MAX_CHARS:
        raise SelectionError(f"{len(text)} characters were given, at most {MAX_CHARS} are allowed")
    parts = _AND.split(text.strip()) if text.strip() else []
    if not parts:
        raise SelectionError("it is empty; give a condition, such as tenant=acme or age_s>60")
    if len(parts) > MAX_CONDITIONS:
        raise SelectionError(f"{len(parts)} conditions were given, at most {MAX_CONDITIONS} are allowed")
    return Selection(tuple(_condition(part) for part in parts))


def _condition(part: str) -> Condition:
    found = _CONDITION.fullmatch(part)
    if found is None:
        raise SelectionError(
            f"{_shown(part)} is no condition; give FIELD SIGN VALUE with one of = != < <= > >=, joined by and"
        )
    field, sign, word = found.groups()
    if field in WORDS or field in FLAGS:
        if sign in _ORDERS:
            raise SelectionError(f"{field} is compared with = or !=, got {sign}")
        return Condition(field, sign, _flag(field, word) if field in FLAGS else _word(field, word))
    if field in NUMBERS:
        return Condition(field, sign, _number(field, sign, word))
    raise SelectionError(f"there is no field {field}; allowed are {', '.join((*WORDS, *NUMBERS, *FLAGS))}")


def _word(field: str, word: str) -> str | None:
    if field == "state" and word == "finished":
        raise SelectionError("state: only waiting and running requests can be selected")
    return None if word == NONE else word


def _flag(field: str, word: str) -> bool:
    if word not in ("true", "false"):
        raise SelectionError(f"{field} is true or false, got {_shown(word)}")
    return word == "true"


def _number(field: str, sign: str, word: str) -> float | None:
    if word == NONE and sign not in _ORDERS:
        return None
    if not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", word, re.ASCII):
        raise SelectionError(f"{field} is compared with a number of at least 0, got {_shown(word)}")
    return float(word)


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 60 else shown[:60] + "…"
