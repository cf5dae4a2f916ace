"""SGLang's ``/generate``. Written after its documentation: it does not run where this was tested."""

from typing import Any

from infer_engine.foreign.asking import entry, integer
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.protocol import FinishReason
from infer_engine.replica.upstream.constraints import CONTINUED, with_keywords
from infer_engine.replica.upstream.dialect import Ask, Heard, finish_of, shared_words
from infer_engine.replica.upstream.token_ids import token_ids

FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
#: What xgrammar, which it follows constraints with, leaves out of a schema.
LEFT_OUT = with_keywords(
    *("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "propertyNames"),
    *("patternProperties", "allOf of several", "not", "if", "dependentRequired", "dependentSchemas"),
    *(f"{length} beside {other}" for length in ("minLength", "maxLength") for other in ("pattern", "format")),
)


class Sglang:
    """``seeds``: it takes a seed, where those that are older fail a request that has one. It counts where the
    server was started for deterministic inference."""

    product = "SGLang"
    path = "/generate"
    lacks = frozenset({"logprobs", "logit_bias", CONTINUED}) | LEFT_OUT

    def __init__(self, *, seeds: bool = True) -> None:
        self._seeds = seeds

    def body(self, ask: Ask) -> dict[str, Any]:
        parameters = {**shared_words(ask), "max_new_tokens": ask.max_tokens}
        if self._seeds:
            parameters["sampling_seed"] = ask.sampling.seed % (1 << 63)
        if ask.min_tokens:
            parameters["min_new_tokens"] = ask.min_tokens
        constraint = ask.sampling.constraint
        if constraint is not None:
            parameters["regex" if constraint.kind == "regex" else "json_schema"] = constraint.source
        return {"input_ids": ask.prompt, "sampling_params": parameters, "stream": True}

    def reader(self) -> "_Reader":
        return _Reader()

    def tokenizing(self, text: str) -> dict[str, Any]:
        return {"prompt": text, "add_special_tokens": False}


class _Reader:
    """Its events tell all tokens so far or, where it was started so, the new ones: how many there are by now
    says which."""

    def __init__(self) -> None:
        self._seen = 0

    def read(self, event: Any) -> Heard:
        tokens = token_ids(entry(event, "output_ids"))
        if tokens is None:
            raise NotUnderstoodError("it tells text only, and no token ids (output_ids)")
        total = integer(entry(event, "meta_info", "completion_tokens"))
        if total is None or total == self._seen + len(tokens):
            new = tokens
        elif total == len(tokens):
            new = tokens[self._seen :]
        else:
            raise NotUnderstoodError(
                f"of {total} tokens it told {len(tokens)} where {self._seen} had been told: some are missing"
            )
        self._seen += len(new)
        reason = entry(event, "meta_info", "finish_reason")
        kind = entry(reason, "type") if isinstance(reason, dict) else reason
        return Heard(new, [], finish_of(kind, FINISHES))
