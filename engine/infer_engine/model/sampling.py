"""How the next token of one request is chosen: parameters only, no torch.

Sampling is a pure function of these parameters, the logits, the tokens so far, the seed and the position,
so a request continues the same after preemption or on another replica.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

#: Most alternatives whose logprobs are told beside the chosen token's.
MOST_LOGPROBS = 20
#: Most tokens that a request may favour or ban one by one.
MOST_BIASES = 1024


class Constraint(Struct, frozen=True, kw_only=True):
    """What the whole answer must match; ``source`` is a JSON schema as JSON, or a regular expression."""

    kind: Literal["json_schema", "regex"]
    source: str


class Sampling(Struct, frozen=True, kw_only=True):
    """``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and the penalties' neutral values
    (1, 0, 0) are off; ``seed`` is always set (the gateway draws one where the client gave none). What each
    does, and in which order, is told in ``processors.py`` and ``sampler.py``."""

    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    seed: int = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] = 1.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    #: Added to the logits of these token ids.
    logit_bias: Annotated[dict[int, float], Meta(max_length=MOST_BIASES)] = {}
    #: Stop tokens are not chosen before so many tokens.
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    #: Of how many alternatives the logprobs are told, beside the chosen token's own; None for nothing.
    logprobs: Annotated[int, Meta(ge=0, le=MOST_LOGPROBS)] | None = None
    constraint: Constraint | None = None

    @property
    def penalizes(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
