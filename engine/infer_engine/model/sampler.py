"""Chooses the next token of each row: a pure function of the row's logits, its parameters, its seed and its
position.

Temperature first, then what is too unlikely goes, in this order: ``min_p`` (keep what has at least that share
of the likeliest token's probability), ``top_k`` (keep the k likeliest; those that tie with the last of them
stay), ``top_p`` (of what is left, renormalised, keep the fewest that hold the mass). Of the rest one is drawn
by inverting the cumulative distribution, the likeliest token first, at the row's number: the many unlikely
tokens lie behind all others, so tiny differences of the logits shift little. The order is that of vLLM's V1
sampler; min_p as in arXiv 2407.01082, top_p as in arXiv 1904.09751.

No operation lets one row's result depend on its neighbours or on how many there are: sums over a vocabulary,
which torch splits by shape, are cumulative ones, and whatever is summed otherwise is summed row by row.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from infer_engine.model.randomness import uniform
from infer_engine.model.sampling import Sampling

#: Below this the most likely token has all the mass that numbers can tell apart, and far below it dividing by
#: the temperature gives no numbers: greedy.
_COLDEST = 1e-5

#: Tokens looked at first where some are cut away; they nearly always settle it.
_FEW = 256
#: Rows computed at a time where whole vocabularies are.
_ROWS = 8
#: Logits in fp32 tell the mass of a prefix no better than this.
_MASS_ERROR = 1e-7

Floats = NDArray[np.float64]


def sample(
    logits: torch.Tensor, parameters: Sequence[Sampling | None], positions: Sequence[int]
) -> list[int]:
    """``logits`` fp32 [S, vocab]; ``positions`` are those of the tokens being chosen. None is greedy. Ties go
    to the lowest id. Rows without a finite logit give some id, never an error."""
    chosen: list[int] = logits.argmax(dim=-1).tolist()
    warm = [row for row, one in enumerate(parameters) if one is not None and one.temperature >= _COLDEST]
    if warm:
        asked = [one for row in warm if (one := parameters[row]) is not None]
        numbers = [uniform(one.seed, positions[row]) for row, one in zip(warm, asked, strict=True)]
        drawn = _draw(logits if len(warm) == len(logits) else logits[warm], asked, numbers)
        for row, token in zip(warm, drawn, strict=True):
            chosen[row] = token
    return chosen


def _scaled(logits: torch.Tensor, parameters: Sequence[Sampling]) -> torch.Tensor:
    """Relative to the maximum, divided by the temperature. The maximum is 0 before that, so that a low
    temperature makes no score positive and huge."""
    temperatures = logits.new_tensor([one.temperature for one in parameters]).unsqueeze(-1)
    return (logits - logits.amax(-1, keepdim=True)).div_(temperatures)


def _draw(logits: torch.Tensor, parameters: Sequence[Sampling], numbers: Sequence[float]) -> list[int]:
    """Look at the likeliest tokens only, at more of them where those do not settle it."""
    chosen = [0] * len(parameters)
    shares: list[float] = []
    for start in range(0, len(logits), _ROWS):
        rows = slice(start, start + _ROWS)
        shares += _scaled(logits[rows], parameters[rows]).softmax(-1).amax(-1).tolist()
    left = list(range(len(parameters)))
    most = _FEW
    while left:
        most = min(most, logits.shape[-1])
        top = (logits if len(left) == len(logits) else logits[left]).topk(most, dim=-1)
        values, ids = top.values.cpu().numpy().astype(np.float64), top.indices.cpu().numpy()
        open_rows: list[int] = []
        for row, value, id in zip(left, values, ids, strict=True):
            candidates = _Candidates(value, id, parameters[row], shares[row])
            if most < logits.shape[-1] and not candidates.settle(numbers[row]):
                open_rows.append(row)
            else:
                chosen[row] = candidates.pick(numbers[row])
        left = open_rows
        most *= 16
    return chosen


class _Candidates:
    """The likeliest tokens of one row, ``logits`` falling. ``highest_share`` is the probability of the first
    of them among all."""

    def __init__(self, logits: Floats, ids: NDArray[np.int64], one: Sampling, highest_share: float) -> None:
        # Equal ones come in the order of their ids, however the search left them.
        order = np.lexsort((ids, -logits))
        self._logits = logits[order]
        self._ids = ids[order]
        self._one = one
        #: Relative to the highest.
        with np.errstate(invalid="ignore"):  # a row of no numbers draws some id
            self._weights = np.exp((self._logits - self._logits[0]) / one.temperature)
        self._highest_share = highest_share

    def settle(self, number: float) -> bool:
        """No token that is not here can be drawn. Those equal to the last may lie outside as well."""
        one, last = self._one, self._logits[-1]
        above = int(np.searchsorted(-self._logits, -last))
        mass = float(self._weights[:above].sum() * self._highest_share)
        return bool(
            0 < one.top_k <= above
            or self._weights[-1] < one.min_p
            or mass >= one.top_p
            or (self._is_whole and mass > number)
        )

    @property
    def _is_whole(self) -> bool:
        """Nothing is cut away."""
        return self._one.top_p >= 1 and self._one.min_p <= 0 and self._one.top_k <= 0

    def pick(self, number: float) -> int:
        """Invert the cumulative distribution of what is kept at ``number``."""
        one, weights = self._one, self._weights
        if one.min_p > 0:
            weights = weights[: max(1, int((weights >= one.min_p).sum()))]
        if 0 < one.top_k < len(weights):
            last = self._logits[one.top_k - 1]
            weights = weights[: int(np.searchsorted(-self._logits[: len(weights)], -last, side="right"))]
        running = np.cumsum(weights)
        if one.top_p < 1:
            before = np.concatenate(([0.0], running[:-1]))
            running = running[: max(1, int((before < (one.top_p - _MASS_ERROR) * running[-1]).sum()))]
        total = 1 / self._highest_share if self._is_whole else running[-1]
        index = int(np.searchsorted(running, total * number, side="right"))
        return int(self._ids[min(index, len(running) - 1)])
