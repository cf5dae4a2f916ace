"""What chat and text completions have in common: how to generate, when to stop, how to answer."""

from dataclasses import dataclass
from typing import Any, cast

from msgspec import structs

from infer_engine.gateway.constraint_params import read_constraint
from infer_engine.gateway.errors import invalid, shown
from infer_engine.gateway.fields import Fields, check_unicode
from infer_engine.gateway.sampling_params import read_sampling
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.gateway.unbuilt_fields import refuse_unbuilt
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Tier

TIERS: tuple[Tier, ...] = ("interactive", "batch")
MAX_USER_CHARS = 256
MAX_DEADLINE_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """``max_tokens`` None means as many as fit; ``tier`` None means what the header says. ``choices`` is how
    many answers are asked for; ``constraint_field`` is what an error about the constraint names."""

    max_tokens: int | None
    sampling: Sampling
    stop: tuple[str, ...]
    include_stop: bool
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    choices: int
    stream: bool
    include_usage: bool
    #: Usage so far on every chunk, not only on the last.
    continuous_usage: bool
    tier: Tier | None
    user: str | None
    #: Seconds from arrival; None means what the header says.
    deadline_s: float | None
    constraint_field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What values are checked against."""

    context_length: int
    vocabulary_size: int
    settings: GatewaySettings


def read_params(
    fields: Fields, bounds: Bounds, *, logprobs: int | None, default_max_tokens: int | None = None
) -> Params:
    """``logprobs``: how many alternatives are told, None for none at all; its field differs by endpoint.
    Raise ApiError (400) naming the first field that is not acceptable."""
    refuse_unbuilt(fields)
    settings = bounds.settings
    ignore_eos = fields.boolean("ignore_eos", False)
    stream = fields.boolean("stream", False)
    max_tokens = _max_tokens(fields, bounds.context_length) or default_max_tokens
    asked = read_constraint(fields)
    if asked is not None and ignore_eos:
        raise invalid(
            "ignore_eos", f"ignore_eos must be false with {asked.field}: a constrained answer ends by itself"
        )
    include_usage, continuous_usage = _usage(fields, stream)
    params = Params(
        max_tokens=max_tokens,
        sampling=structs.replace(
            read_sampling(fields, bounds.vocabulary_size, max_tokens or bounds.context_length),
            logprobs=logprobs,
            constraint=None if asked is None else asked.constraint,
        ),
        stop=_stop(fields, settings),
        include_stop=fields.boolean("include_stop_str_in_output", False),
        stop_token_ids=_stop_token_ids(fields, bounds),
        ignore_eos=ignore_eos,
        choices=_choices(fields, settings),
        stream=stream,
        include_usage=include_usage,
        continuous_usage=include_usage and continuous_usage,
        tier=cast("Tier | None", fields.choice("tier", None, TIERS)),
        user=fields.text("user", None, max_chars=MAX_USER_CHARS),
        deadline_s=_deadline(fields),
        constraint_field=None if asked is None else asked.field,
    )
    check_totals(params.choices, max_tokens, logprobs, settings)
    return params


def check_totals(
    choices: int, max_tokens: int | None, logprobs: int | None, settings: GatewaySettings
) -> None:
    """What fits one by one may be too much together. Raise ApiError (400); ``max_tokens`` None is looked at
    again when it is known."""
    if max_tokens is None:
        return
    tokens = choices * max_tokens
    if choices > 1 and tokens > settings.max_choices_tokens:
        raise invalid(
            "n",
            f"n {choices} x max_tokens {max_tokens:,} = {tokens:,} tokens; at most "
            f"{settings.max_choices_tokens:,} are allowed together",
        )
    if logprobs is not None and tokens * (logprobs + 1) > settings.max_logprobs:
        raise invalid(
            "logprobs",
            f"n {choices} x max_tokens {max_tokens:,} x ({logprobs} + 1) logprobs = "
            f"{tokens * (logprobs + 1):,}; at most {settings.max_logprobs:,} are allowed together",
        )


def _choices(fields: Fields, settings: GatewaySettings) -> int:
    choices = fields.integer("n", 1, 1, settings.max_choices) or 1
    best_of = fields.raw("best_of")
    if best_of is not None and (type(best_of) is not int or best_of != choices):
        raise invalid(
            "best_of",
            f"best_of {shown(best_of)} is not supported; the only value allowed is n ({choices})",
            code="unsupported_value",
        )
    return choices


def _stop_token_ids(fields: Fields, bounds: Bounds) -> tuple[int, ...]:
    value: Any = fields.raw("stop_token_ids")
    if value is None:
        return ()
    most, last = bounds.settings.max_stop_token_ids, bounds.vocabulary_size - 1
    allowed = f"a list of at most {most} token ids from 0 to {last:,}"
    if not isinstance(value, list):
        fields.refuse("stop_token_ids", allowed)
    ids = cast("list[Any]", value)
    if len(ids) > most:
        fields.refuse("stop_token_ids", allowed)
    for token in ids:
        if type(token) is not int or not 0 <= token <= last:
            raise invalid(
                "stop_token_ids", f"stop_token_ids must be {allowed}; one of them is {shown(token)}"
            )
    return tuple(dict.fromkeys(ids))


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


def _usage(fields: Fields, stream: bool) -> tuple[bool, bool]:
    """At the end, and all the time: the second is vLLM's and counts only with the first."""
    options = fields.object("stream_options")
    if options is None:
        return False, False
    if not stream:
        raise invalid("stream_options", "stream_options is only allowed when stream is true")
    return options.boolean("include_usage", False), options.boolean("continuous_usage_stats", False)
