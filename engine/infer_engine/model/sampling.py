"""How the next token of one request is chosen: parameters only, no torch.

Sampling is a pure function of these parameters, the logits, the seed and the position, so a request continues
the same after preemption or on another replica.
"""

from typing import Annotated

from msgspec import Meta, Struct


class Sampling(Struct, frozen=True, kw_only=True):
    """``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 are off; ``seed`` is always set (the gateway
    draws one where the client gave none)."""

    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    seed: int = 0
