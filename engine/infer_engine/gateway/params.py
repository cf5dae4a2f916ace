"""What chat and text completions have in common: how to generate, when to stop, how to answer."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from infer_engine.gateway.errors import invalid, shown
from infer_engine.gateway.fields import Fields, check_unicode
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Tier

TIERS: tuple[Tier, ...] = ("interactive", "batch")
MAX_TOP_K = 1_000_000
MAX_USER_CHARS = 256
MAX_DEADLINE_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """``max_tokens`` None means as many as fit; ``tier`` None means what the header says."""

    max_tokens: int | None
    sampling: Sampling
    stop: tuple[str, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    tier: Tier | None
    user: str | None
    #: Seconds from arrival; None means what the header says.
    deadline_s: float | None


def read_params(fields: Fields, context_length: int, settings: GatewaySettings) -> Params:
    """Raise ApiError (400) naming the first field that is not acceptable."""
    ignore_eos = fields.boolean("ignore_eos", False)
    _refuse_unsupported(fields, ignore_eos)
    stream = fields.boolean("stream", False)
    return Params(
        max_tokens=_max_tokens(fields, context_length),
        sampling=_sampling(fields),
        stop=_stop(fields, settings),
        ignore_eos=ignore_eos,
        stream=stream,
        include_usage=_include_usage(fields, stream),
        tier=cast("Tier | None", fields.choice("tier", None, TIERS)),
        user=fields.text("user", None, max_chars=MAX_USER_CHARS),
        deadline_s=_deadline(fields),
    )


def _max_tokens(fields: Fields, context_length: int) -> int | None:
    old = fields.integer("max_tokens", None, 1, context_length)
    new = fields.integer("max_completion_tokens", None, 1, context_length)
    if old is not None and new is not None and old != new:
        raise invalid(
            "max_tokens", f"max_tokens is {old:,} but max_completion_tokens is {new:,}; give one of them"
        )
    return old if new is None else new


def _deadline(fields: Fields) -> float | None:
    if fields.raw("deadline_s") is None:
        return None
    return fields.number("deadline_s", 0.0, 0, MAX_DEADLINE_S, open_low=True)


def _sampling(fields: Fields) -> Sampling:
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    top_k = fields.integer("top_k", 0, -1, MAX_TOP_K)
    return Sampling(
        temperature=fields.number("temperature", 1.0, 0, 2),
        top_p=fields.number("top_p", 1.0, 0, 1, open_low=True),
        # -1 and 0 both are "off" in the field.
        top_k=max(0, top_k or 0),
        seed=secrets.randbits(63) if seed is None else seed,
    )


def _stop(fields: Fields, settings: GatewaySettings) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None:
        return ()
    value = cast("Any", [value] if isinstance(value, str) else value)
    allowed = (
        f"a string or a list of at most {settings.max_stops} strings, each of 1 to "
        f"{settings.max_stop_chars} characters"
    )
    if not isinstance(value, list):
        fields.refuse("stop", allowed)
    stops = cast("list[Any]", value)
    if len(stops) > settings.max_stops:
        fields.refuse("stop", allowed)
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= settings.max_stop_chars:
            raise invalid("stop", f"stop must be {allowed}; one of them is {shown(stop)}")
        check_unicode(stop, "stop")
    return tuple(dict.fromkeys(stops))


def _include_usage(fields: Fields, stream: bool) -> bool:
    options = fields.object("stream_options")
    if options is None:
        return False
    if not stream:
        raise invalid("stream_options", "stream_options is only allowed when stream is true")
    return options.boolean("include_usage", False)


def _empty(value: Any) -> bool:
    return value in (None, "", [], {})


def _one_of(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, bool) and value in allowed


#: Fields that would change the answer and are not built: accepted only where they ask for nothing.
_UNSUPPORTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n": (_one_of(1), "1"),
    "best_of": (_one_of(1), "1"),
    "presence_penalty": (_one_of(0), "0"),
    "frequency_penalty": (_one_of(0), "0"),
    "repetition_penalty": (_one_of(1), "1"),
    "min_p": (_one_of(0), "0"),
    "logit_bias": (_empty, "empty"),
    "logprobs": (lambda value: value is False, "false"),
    "top_logprobs": (_one_of(0), "0"),
    "echo": (lambda value: value is False, "false"),
    "suffix": (_empty, "empty"),
    "tools": (_empty, "empty"),
    "functions": (_empty, "empty"),
    "stop_token_ids": (_empty, "empty"),
    "tool_choice": (_one_of("none", "auto"), "none or auto"),
    "response_format": (lambda value: value == {"type": "text"}, '{"type": "text"}'),
    "modalities": (lambda value: value == ["text"], '["text"]'),
}


def _refuse_unsupported(fields: Fields, ignore_eos: bool) -> None:
    for field, (harmless, allowed) in _UNSUPPORTED.items():
        value = fields.raw(field)
        if value is not None and not harmless(value):
            raise invalid(
                field,
                f"{field} {shown(value)} is not supported; the only value allowed is {allowed}",
                code="unsupported_value",
            )
    # With ignore_eos nothing ends an answer early but a stop string, so a minimum asks for nothing more.
    if not ignore_eos and fields.integer("min_tokens", 0, 0, 2**31):
        raise invalid(
            "min_tokens",
            "min_tokens is not supported without ignore_eos; the only value allowed is 0",
            code="unsupported_value",
        )
