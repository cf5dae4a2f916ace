"""llama.cpp's ``/completion``: token ids in, and out with ``return_tokens``.

It keeps a token back that ends within a character, and tells only the last of those that complete it: the
others are found again from the text, see ``lost_tokens``.
"""

from collections.abc import Callable
from typing import Any

from infer_engine.foreign.asking import entry, integer
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.protocol import FinishReason
from infer_engine.replica.upstream.constraints import (
    CONTINUED,
    MOST_COUNTED,
    REGEX,
    alternatives,
    grammar_of,
    schema_of,
    with_keywords,
)
from infer_engine.replica.upstream.dialect import Ask, Heard
from infer_engine.replica.upstream.token_ids import token_ids

FINISHES: dict[str, FinishReason] = {"eos": "stop", "word": "stop", "limit": "length"}
#: As our own do: penalties, then temperature, then what cuts off the tail.
SAMPLERS = ["penalties", "temperature", "top_k", "top_p", "min_p"]

#: What it leaves out of a schema when it makes a grammar of it.
LEFT_OUT = with_keywords(
    *("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "propertyNames"),
    *("patternProperties", "minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems"),
    *("not", "if", "dependentRequired", "dependentSchemas", "additionalItems", "allOf"),
    *(f"format {each}" for each in ("duration", "email", "hostname", "ipv4", "ipv6", "uri", "unknown")),
    *(f"{each} of a number" for each in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    *(f"{each} without items" for each in ("minItems", "maxItems")),
    # Its grammar is full near 65,000: then it follows none, and says so in its log alone.
    *(f"{each} above {MOST_COUNTED:,}" for each in ("minItems", "maxItems")),
    *(f"{each} beside other keywords" for each in ("anyOf", "oneOf", "$ref")),
    *(
        f"{length} {how}"
        for length in ("minLength", "maxLength")
        for how in ("beside pattern", "beside format", "without the type string")
    ),
    *("prefixItems beside items", "required of what properties does not name"),
)

#: The tokens that make up a text, so many of them and the last one given; None where there are none.
FindTokens = Callable[[str, int, int], list[int] | None]


class LlamaCpp:
    product = "llama.cpp"
    path = "/completion"
    lacks = frozenset({"logprobs", "min_tokens", REGEX, CONTINUED}) | LEFT_OUT

    def __init__(self, find_tokens: FindTokens, context_length: int) -> None:
        self._find_tokens = find_tokens
        self._context_length = context_length

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling = ask.sampling
        body: dict[str, Any] = {
            "prompt": ask.prompt,
            "n_predict": ask.max_tokens,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            # The highest seed asks it to draw one.
            "seed": sampling.seed % 0xFFFFFFFF,
            "repeat_penalty": sampling.repetition_penalty,
            "repeat_last_n": self._context_length,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "logit_bias": [[token, bias] for token, bias in sampling.logit_bias.items()],
            "samplers": SAMPLERS,
            "ignore_eos": not ask.ends,
        }
        constraint = sampling.constraint
        if constraint is None:
            return body
        if constraint.kind == "regex":
            body["grammar"] = grammar_of(alternatives(constraint.source) or [])
        else:
            body["json_schema"] = schema_of(constraint)
        return body

    def reader(self) -> "_Reader":
        return _Reader(self._find_tokens)

    def tokenizing(self, text: str) -> dict[str, Any]:
        return {"content": text, "add_special": False, "parse_special": True}


class _Reader:
    def __init__(self, find_tokens: FindTokens) -> None:
        self._find_tokens = find_tokens
        self._seen = 0

    def read(self, event: Any) -> Heard:
        tokens = token_ids(entry(event, "tokens"))
        if tokens is None:
            raise NotUnderstoodError("it tells text only, and no token ids (return_tokens)")
        if entry(event, "stop") is True:
            reason = entry(event, "stop_type")
            return Heard([], [], FINISHES.get(reason, "stop") if isinstance(reason, str) else "stop")
        total = integer(entry(event, "tokens_predicted"))
        missing = 0 if total is None else total - self._seen - len(tokens)
        if missing > 0 and tokens:
            tokens = self._whole(event, missing + 1, tokens[-1])
        self._seen += len(tokens)
        return Heard(tokens)

    def _whole(self, event: Any, count: int, last: int) -> list[int]:
        text = entry(event, "content")
        found = self._find_tokens(text, count, last) if isinstance(text, str) else None
        if found is None:
            raise NotUnderstoodError(
                f"it left {count - 1} tokens out of its stream, and its text does not tell which"
            )
        return found
