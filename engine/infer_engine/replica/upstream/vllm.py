"""vLLM's ``/v1/completions``: token ids in and, since 0.10.2, token ids out."""

import math
from typing import Any

from infer_engine.foreign.asking import entry
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.model.logprobs import TokenLogprobs
from infer_engine.protocol import FinishReason
from infer_engine.replica.upstream.constraints import CONTINUED, schema_of
from infer_engine.replica.upstream.dialect import Ask, Heard, finish_of, shared_words
from infer_engine.replica.upstream.token_ids import token_ids

FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length", "repetition": "stop"}
#: Tokens are told by this and their number.
ID_MARK = "token_id:"
MOST_DIGITS = 10


class Vllm:
    product = "vLLM"
    path = "/v1/completions"
    lacks = frozenset({CONTINUED})

    def __init__(self, model: str) -> None:
        self._model = model

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling = ask.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": ask.prompt,
            "max_tokens": ask.max_tokens,
            "stream": True,
            "return_token_ids": True,
            **shared_words(ask),
            "seed": sampling.seed % (1 << 63),
        }
        if ask.min_tokens:
            body["min_tokens"] = ask.min_tokens
        if sampling.logit_bias:
            body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
        constraint = sampling.constraint
        if constraint is not None and constraint.kind == "regex":
            body["structured_outputs"] = {"regex": constraint.source}
        elif constraint is not None:
            body["structured_outputs"] = {"json": schema_of(constraint)}
        if sampling.logprobs is not None:
            body |= {"logprobs": sampling.logprobs, "return_tokens_as_token_ids": True}
        return body

    def reader(self) -> "_Reader":
        return _Reader()

    def tokenizing(self, text: str) -> dict[str, Any]:
        return {"model": self._model, "prompt": text, "add_special_tokens": False}


class _Reader:
    def read(self, event: Any) -> Heard:
        choice = entry(event, "choices", 0)
        if choice is None:  # what it used, at the end
            return Heard()
        tokens = token_ids(entry(choice, "token_ids"))
        if tokens is None:
            if entry(choice, "text"):
                raise NotUnderstoodError(
                    "it tells text only, and no token ids: vLLM does since 0.10.2 (return_token_ids)"
                )
            tokens = []
        finish = finish_of(entry(choice, "finish_reason"), FINISHES)
        return Heard(tokens, _logprobs(entry(choice, "logprobs"), len(tokens)), finish)


def _logprobs(told: Any, count: int) -> list[TokenLogprobs]:
    chosen, tops = entry(told, "token_logprobs"), entry(told, "top_logprobs")
    if not isinstance(chosen, list) or len(chosen) != count:
        return []
    read: list[TokenLogprobs] = []
    for at, logprob in enumerate(chosen):
        if _finite(logprob) is None:
            return []
        top = entry(tops, at)
        pairs = sorted(_pairs(top), key=lambda pair: -pair[1]) if isinstance(top, dict) else []
        read.append(TokenLogprobs(float(logprob), [token for token, _ in pairs], [each for _, each in pairs]))
    return read


def _pairs(top: dict[Any, Any]) -> list[tuple[int, float]]:
    pairs: list[tuple[int, float]] = []
    for name, logprob in top.items():
        number = str(name).removeprefix(ID_MARK)
        value = _finite(logprob)
        # No token's number has more digits; str.isdecimal alone takes any script's.
        is_number = number.isascii() and number.isdecimal() and len(number) <= MOST_DIGITS
        if str(name).startswith(ID_MARK) and is_number and value is not None:
            pairs.append((int(number), value))
    return pairs


def _finite(value: Any) -> float | None:
    """JSON knows integers that no float holds."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
