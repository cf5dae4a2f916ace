"""How one kind of server is asked to generate, and how it answers. Pure: JSON in, JSON out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from infer_engine.model.logprobs import TokenLogprobs
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import FinishReason
from infer_engine.replica.upstream.constraints import CONTINUED, needs
from infer_engine.replica.upstream.events import SaidError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """``prompt`` are all tokens known so far, those that were generated elsewhere included; ``max_tokens``
    and ``min_tokens`` are of what is left."""

    prompt: list[int]
    max_tokens: int
    min_tokens: int = 0
    sampling: Sampling
    stop_token_ids: tuple[int, ...] = ()
    #: The model's own end is one of them.
    ends: bool = True


@dataclass(slots=True)
class Heard:
    """What one event of a stream came to. ``logprobs`` is as long as ``tokens``, or empty."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    finish: FinishReason | None = None


class Reader(Protocol):
    """Reads the events of one stream, in their order."""

    def read(self, event: Any) -> Heard:
        """Raise NotUnderstoodError for what such a server would not say."""
        ...


class Dialect(Protocol):
    product: str
    #: Where a stream is asked for.
    path: str
    #: Parameters of ours, by the names that clients use, that it cannot be asked for; what of a constraint is
    #: named in ``constraints``.
    lacks: frozenset[str]

    def body(self, ask: Ask) -> dict[str, Any]: ...

    def reader(self) -> Reader: ...

    def tokenizing(self, text: str) -> dict[str, Any]:
        """What is posted to ``/tokenize`` to have ``text`` cut into tokens as it is, names of special tokens
        meaning those and nothing added."""
        ...


def shared_words(ask: Ask) -> dict[str, Any]:
    """What vLLM and SGLang call the same."""
    sampling = ask.sampling
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stop_token_ids": list(ask.stop_token_ids),
        "ignore_eos": not ask.ends,
        "skip_special_tokens": False,
    }


def finish_of(reason: Any, known: Mapping[str, FinishReason]) -> FinishReason | None:
    """None while it goes on. Raise SaidError for an end that is none of a request's own: what the server did
    not finish may be finished elsewhere."""
    if reason is None:
        return None
    if not isinstance(reason, str) or reason not in known:
        raise SaidError(f"it ended a request as {str(reason)[:40]!r}", 500)
    return known[reason]


def parameters(sampling: Sampling, emitted: int = 0) -> set[str]:
    """Of those that some server lacks, the ones that ``sampling`` asks for, after so many tokens."""
    wanted: set[str] = set()
    if sampling.constraint is not None:
        wanted |= needs(sampling.constraint)
        if emitted:
            wanted.add(CONTINUED)
    if sampling.logprobs is not None:
        wanted.add("logprobs")
    if sampling.min_tokens:
        wanted.add("min_tokens")
    if sampling.logit_bias:
        wanted.add("logit_bias")
    return wanted
