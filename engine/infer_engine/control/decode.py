"""Command bodies: JSON to a struct, strictly, and then the bounds that types cannot say."""

import json
import math
import re
from typing import TypeVar, cast

import msgspec

from infer_engine.control.demand import check_demand
from infer_engine.control.problems import echo
from infer_engine.fleet.generation import Refusal, misfit, refuse
from infer_engine.fleet.tenants import TENANT
from infer_engine.protocol import (
    EVERYONE,
    AcquireLease,
    CancelWhere,
    ChangeLimits,
    ChangeTenant,
    Command,
    Drain,
    Inject,
    LeaseCommand,
    Restart,
    Scale,
    SetHeadroom,
)

C = TypeVar("C", bound=Command | LeaseCommand)

MAX_REASON_CHARS = 256
MAX_ACTOR_CHARS = 64
MAX_DEADLINE_S = 3_600.0
MAX_REVERT_S = 86_400.0
MAX_VICTIMS = 1_024
#: Requests that one command may cancel.
MOST_AT_ONCE = 1_000

_NUMBERS = frozenset(
    {"percent", "blocks", "deadline_s", "revert_after_s", "rate_per_s", "duration_s", "seed"}
)
_PATH = re.compile(r"`\$\.?([A-Za-z0-9_.\[\]]*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*)`")
_MISSING = re.compile(r"missing required field `(.*?)`")


def decode(kind: type[C], body: bytes) -> C:
    """``body`` as a checked command; an empty body is a command with defaults. Raises Refusal: 400 for what
    is no JSON, 422 with the field's name for what does not fit."""
    try:
        # First as plain values: a body that is no JSON is told so, whatever it was meant to be.
        command = msgspec.convert(msgspec.json.decode(body or b"{}"), kind)
    except msgspec.ValidationError as error:
        field = _field_out_of_range(body)
        if field is not None:
            raise misfit(field, "the number is out of range.") from error
        raise _misfit(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refuse(400, "invalid_json", "The body is not valid JSON.", str(error)[:200]) from error
    except RecursionError as error:
        raise refuse(400, "invalid_json", "The body is nested too deeply.") from error
    _check_words(command)
    if isinstance(command, Drain):
        _check_drain(command)
    elif isinstance(command, SetHeadroom):
        _check_headroom(command)
    elif isinstance(command, Inject):
        check_demand(command)
    elif isinstance(command, ChangeLimits | ChangeTenant):
        _check_timed(command)
    elif isinstance(command, Restart | Scale):
        _check_range("deadline_s", command.deadline_s, 0.0, MAX_DEADLINE_S)
    if isinstance(command, Scale) and len(command.victims) > MAX_VICTIMS:
        raise misfit("victims", f"at most {MAX_VICTIMS} may be named, {len(command.victims)} were.")
    if isinstance(command, CancelWhere):
        _check_selection(command)
    elif isinstance(command, AcquireLease):
        _check_word("purpose", command.purpose, MAX_REASON_CHARS)
    return command


def check_tenant(name: str) -> None:
    """Refusal unless it is a tenant's name as the gateway takes them, or stands for all."""
    if name != EVERYONE and not TENANT.fullmatch(name):
        raise misfit("tenant", f"1 to 64 of the characters a-z, 0-9 and -, or {EVERYONE}, got {echo(name)}.")


def _field_out_of_range(body: bytes) -> str | None:
    """The field whose number is too large to be one, for the JSON decoder does not say which."""
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    values = cast("dict[str, object]", parsed)
    for field, value in values.items():
        if isinstance(value, float) and math.isinf(value) and field in _NUMBERS:
            return field
    return None


def _misfit(message: str) -> Refusal:
    found = _PATH.search(message) or _UNKNOWN.search(message) or _MISSING.search(message)
    field = found.group(1)[:64] if found else None
    title = f"{ascii(field)[1:-1]} does not fit." if field else "The body does not fit."
    return refuse(422, "invalid_field", title, message[:300], field=field or None)


def _check_words(command: Command | LeaseCommand) -> None:
    _check_word("reason", command.reason, MAX_REASON_CHARS)
    _check_word("actor", command.actor, MAX_ACTOR_CHARS)


def _check_word(field: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise misfit(field, f"{len(text)} characters were given, at most {limit} are allowed.")
    if not text.isprintable():
        raise misfit(field, f"only printable characters are allowed, got {echo(text)}.")


def _check_selection(command: CancelWhere) -> None:
    if command.expect is not None and not 0 <= command.expect <= MOST_AT_ONCE:
        raise misfit("expect", f"must be from 0 to {MOST_AT_ONCE}, got {command.expect}.")
    if not 1 <= command.max <= MOST_AT_ONCE:
        raise misfit("max", f"must be from 1 to {MOST_AT_ONCE}, got {command.max}.")


def _check_drain(command: Drain) -> None:
    if command.deadline_s is not None:
        _check_range("deadline_s", command.deadline_s, 0.0, MAX_DEADLINE_S)


def _check_headroom(command: SetHeadroom) -> None:
    if (command.percent is None) == (command.blocks is None):
        raise misfit("percent", "exactly one of percent and blocks must be given.")
    if command.percent is not None:
        _check_range("percent", command.percent, 0.0, 100.0)
    if command.blocks is not None and command.blocks < 0:
        raise misfit("blocks", f"must be at least 0, got {command.blocks}.")
    if command.revert_after_s is not None:
        _check_range("revert_after_s", command.revert_after_s, 1.0, MAX_REVERT_S)


def _check_timed(command: ChangeLimits | ChangeTenant) -> None:
    if command.revert_after_s is not None:
        _check_range("revert_after_s", command.revert_after_s, 1.0, MAX_REVERT_S)
    if isinstance(command, ChangeTenant) and bool(command.limits) == command.forget:
        raise misfit("limits", "either limits or forget must be given.")


def _check_range(field: str, value: float, lowest: float, highest: float) -> None:
    if not math.isfinite(value) or not lowest <= value <= highest:
        raise misfit(field, f"must be from {lowest:g} to {highest:g}, got {value:g}.")
