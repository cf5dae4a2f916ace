"""Chooses the next token of each row: a pure function of the row's logits, its parameters, its seed and its
position.

Randomness is counter-based: one number for each (seed, position), whatever was drawn before, on whatever
replica and among whatever neighbours. So a request continues the same after preemption, recompute or a move.
"""

from collections.abc import Sequence

import torch

from infer_engine.model.sampling import Sampling

_MASK = (1 << 64) - 1
#: Candidates looked at before a whole vocabulary is sorted for top-p; they nearly always hold its mass.
_FEW = 1024
#: Below this the most likely token has all the mass that numbers can tell apart, and far below it dividing by
#: the temperature gives no numbers: greedy.
_COLDEST = 1e-5


def sample(
    logits: torch.Tensor, parameters: Sequence[Sampling | None], positions: Sequence[int]
) -> list[int]:
    """``logits`` fp32 [S, vocab]; ``positions`` are those of the tokens being chosen. None is greedy. Ties go
    to the lowest id. Rows without a finite logit give some id, never an error."""
    chosen: list[int] = logits.argmax(dim=-1).tolist()
    for row, (one, position) in enumerate(zip(parameters, positions, strict=True)):
        if one is not None and one.temperature >= _COLDEST:
            chosen[row] = _draw(logits[row], one, uniform(one.seed, position))
    return chosen


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same seed (any integer) and position."""
    return (_mixed(_mixed(seed & _MASK) + position) >> 11) / (1 << 53)


def _mixed(state: int) -> int:
    """One step of the SplitMix64 generator: a bijection on 64 bits that scatters neighbours."""
    z = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _draw(logits: torch.Tensor, parameters: Sampling, number: float) -> int:
    """Invert the cumulative distribution at ``number``."""
    # The maximum becomes 0 before scaling, so that a low temperature makes no score positive and huge.
    scores = (logits - logits.max()) / parameters.temperature
    if not 0 < parameters.top_k < len(scores) and parameters.top_p >= 1:
        return _invert(scores.softmax(-1), number)
    if 0 < parameters.top_k < len(scores):
        scores, ids = scores.topk(parameters.top_k)
        probabilities = scores.softmax(-1)
    else:
        probabilities, ids = _most_likely(scores.softmax(-1), parameters.top_p)
    return int(ids[_invert(_nucleus(probabilities, parameters.top_p), number)])


def _most_likely(probabilities: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities in falling order with their ids: as many as hold ``mass``, or more."""
    few, ids = probabilities.topk(min(_FEW, len(probabilities)))
    if float(few.sum(dtype=torch.float64)) >= mass:
        return few, ids
    return probabilities.sort(descending=True, stable=True)


def _nucleus(falling: torch.Tensor, top_p: float) -> torch.Tensor:
    """The shortest prefix that holds ``top_p``; at least one."""
    before = falling.cumsum(0, dtype=torch.float64) - falling
    return falling[: max(1, int((before < top_p).sum()))]


def _invert(probabilities: torch.Tensor, number: float) -> int:
    """The index at which the running sum first exceeds ``number`` of the total."""
    running = probabilities.cumsum(0, dtype=torch.float64)
    index = int(torch.searchsorted(running, running[-1] * number, right=True))
    return min(index, len(probabilities) - 1)
