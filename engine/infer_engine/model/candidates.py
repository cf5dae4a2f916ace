"""Which tokens of a row may be drawn where ``min_p``, ``top_k`` and ``top_p`` cut some away."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from infer_engine.model.sampling import Sampling

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Tokens looked at first; they nearly always settle it.
_FEW = 256
#: Logits in fp32 tell the mass of a prefix no better than this.
_MASS_ERROR = 1e-7


def cuts(one: Sampling) -> bool:
    return one.top_p < 1 or one.min_p > 0 or one.top_k > 0


def candidates(logits: torch.Tensor, parameters: Sequence[Sampling]) -> list[tuple[Ids, Floats]]:
    """By row, the ids that are kept and their logits, falling. ``logits`` fp32 [S, vocab] on the CPU."""
    masses = [_mass(row.numpy(), one) for row, one in zip(logits, parameters, strict=True)]
    kept: list[tuple[Ids, Floats]] = [(np.zeros(0, np.int64), np.zeros(0))] * len(parameters)
    left = list(range(len(parameters)))
    most = _FEW
    while left:
        most = min(most, logits.shape[-1])
        top = (logits if len(left) == len(logits) else logits[left]).topk(most, dim=-1)
        open_rows: list[int] = []
        for row, values, ids in zip(left, top.values.numpy(), top.indices.numpy(), strict=True):
            likeliest = _Likeliest(values.astype(np.float64), ids, parameters[row], masses[row])
            if most < logits.shape[-1] and not likeliest.settles():
                open_rows.append(row)
            else:
                kept[row] = likeliest.kept()
        left = open_rows
        most *= 16
    return kept


def _mass(logits: NDArray[np.float32], one: Sampling) -> float:
    """The sum of the weights, relative to the highest, that ``min_p`` leaves in the whole row, if anything
    depends on it."""
    if one.top_p >= 1 or one.top_k > 0:
        return np.inf
    weights = np.exp((logits - logits.max()) / np.float32(one.temperature))
    if one.min_p > 0:
        weights = weights[weights >= one.min_p]
    return float(weights.sum(dtype=np.float64))


class _Likeliest:
    """The likeliest tokens of one row. ``mass`` is as ``_mass`` says."""

    def __init__(self, logits: Floats, ids: Ids, one: Sampling, mass: float) -> None:
        # Equal ones come in the order of their ids, however the search left them.
        order = np.lexsort((ids, -logits))
        self._logits = logits[order]
        self._ids = ids[order]
        self._one = one
        #: Relative to the highest.
        self._weights = np.exp((self._logits - self._logits[0]) / one.temperature)
        self._mass = mass

    def settles(self) -> bool:
        """No token that is not here can be kept. Those equal to the last may lie outside as well."""
        one = self._one
        above = int(np.searchsorted(-self._logits, -self._logits[-1]))
        return bool(
            0 < one.top_k <= above
            or self._weights[-1] < one.min_p
            or self._weights[:above].sum() >= one.top_p * self._mass
        )

    def kept(self) -> tuple[Ids, Floats]:
        """What is left after each cut in turn."""
        one, weights, mass = self._one, self._weights, self._mass
        if one.min_p > 0:
            weights = weights[: max(1, int((weights >= one.min_p).sum()))]
        if 0 < one.top_k < len(weights):
            last = self._logits[one.top_k - 1]
            weights = weights[: int(np.searchsorted(-self._logits[: len(weights)], -last, side="right"))]
        if one.top_k > 0:
            mass = weights.sum()
        count = len(weights)
        if one.top_p < 1:
            before = np.concatenate(([0.0], np.cumsum(weights)[:-1]))
            count = max(1, int((before < (one.top_p - _MASS_ERROR) * mass).sum()))
        return self._ids[:count], self._logits[:count]
