"""Reading how tokens are chosen."""

import secrets
from typing import Any, cast

from infer_engine.gateway.errors import invalid, shown
from infer_engine.gateway.fields import Fields
from infer_engine.model.sampling import MOST_BIASES, MOST_LOGPROBS, Sampling

MAX_TOP_K = 1_000_000
MAX_BIAS = 100
#: What the OpenAI API allows for text completions.
MAX_COMPLETION_LOGPROBS = 5


def read_sampling(fields: Fields, vocabulary_size: int, max_tokens: int) -> Sampling:
    """Raise ApiError (400). At most ``max_tokens`` will be generated."""
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    top_k = fields.integer("top_k", 0, -1, MAX_TOP_K)
    return Sampling(
        temperature=fields.number("temperature", 1.0, 0, 2),
        top_p=fields.number("top_p", 1.0, 0, 1, open_low=True),
        # -1 and 0 both are "off" in the field.
        top_k=max(0, top_k or 0),
        seed=secrets.randbits(63) if seed is None else seed,
        min_p=fields.number("min_p", 0.0, 0, 1),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0, 10, open_low=True),
        presence_penalty=fields.number("presence_penalty", 0.0, -2, 2),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2, 2),
        logit_bias=_logit_bias(fields, vocabulary_size),
        min_tokens=fields.integer("min_tokens", 0, 0, max_tokens) or 0,
    )


def _logit_bias(fields: Fields, vocabulary_size: int) -> dict[int, float]:
    value: Any = fields.raw("logit_bias")
    if value is None:
        return {}
    allowed = (
        f"an object of at most {MOST_BIASES:,} token ids from 0 to {vocabulary_size - 1:,}, "
        f"each with a number from -{MAX_BIAS} to {MAX_BIAS}"
    )
    if not isinstance(value, dict):
        fields.refuse("logit_bias", allowed)
    biases = cast("dict[str, Any]", value)
    if len(biases) > MOST_BIASES:
        raise invalid("logit_bias", f"logit_bias must be {allowed}; {len(biases):,} were given")
    result: dict[int, float] = {}
    for token, bias in biases.items():
        known = token.isascii() and token.isdigit() and len(token) < 12 and int(token) < vocabulary_size
        if not known or type(bias) not in (int, float) or not -MAX_BIAS <= bias <= MAX_BIAS:
            raise invalid(
                "logit_bias", f"logit_bias must be {allowed}; one of them is {shown(token)}: {shown(bias)}"
            )
        result[int(token)] = float(bias)
    return result


def read_chat_logprobs(fields: Fields) -> int | None:
    """``logprobs`` true or false, and how many alternatives in ``top_logprobs``."""
    wanted = fields.boolean("logprobs", False)
    top = fields.integer("top_logprobs", None, 0, MOST_LOGPROBS)
    if top and not wanted:
        raise invalid("top_logprobs", f"top_logprobs {top} needs logprobs to be true")
    return (top or 0) if wanted else None


def read_completion_logprobs(fields: Fields) -> int | None:
    """How many alternatives; the chosen token's logprob comes with any of it. false is taken for none."""
    if fields.raw("logprobs") is False:
        return None
    return fields.integer("logprobs", None, 0, MAX_COMPLETION_LOGPROBS)
