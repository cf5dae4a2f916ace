"""Which tokens of a row may be drawn where ``min_p``, ``top_k`` and ``top_p`` cut some away."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from infer_engine.model.sampling import Sampling

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Logits = NDArray[np.float32]
#: Ids and their logits, falling; equal ones by id.
Candidates = tuple[Ids, Floats]

#: Tokens looked at first; they nearly always settle it.
_FEW = 256
#: Logits in fp32 tell the mass of a prefix no better than this.
_MASS_ERROR = 1e-7


def cuts(one: Sampling) -> bool:
    return one.top_p < 1 or one.min_p > 0 or one.top_k > 0


def few_candidates(logits: torch.Tensor, parameters: Sequence[Sampling]) -> list[Candidates | None]:
    """By row, what is kept, or None where that is more than the likeliest few tell. ``logits`` fp32
    [S, vocab] on the CPU."""
    top = logits.topk(min(_FEW, logits.shape[-1]), dim=-1)
    kept: list[Candidates | None] = []
    for row, values, ids, one in zip(
        logits, top.values.numpy(), top.indices.numpy(), parameters, strict=True
    ):
        # Equal ones come in the order of their ids, however the search left them.
        order = np.lexsort((ids, -values))
        values, ids = values[order], ids[order]
        mass = _mass(row.numpy(), one)
        settled = len(ids) == logits.shape[-1] or _settles(values, one, mass)
        kept.append(_kept(values, ids, one, mass) if settled else None)
    return kept


def all_candidates(logits: Logits, one: Sampling) -> Candidates:
    """What is kept of a row [vocab], by sorting all of it."""
    ids = np.argsort(-logits, stable=True)
    return _kept(logits[ids], ids, one, _mass(logits, one))


def surely_keeps(logits: Logits, one: Sampling, id: int) -> bool:
    """This token of a row [vocab] is kept: seen without sorting. Not always seen where ``top_k`` and
    ``top_p`` meet."""
    likelier = logits > logits[id]
    if one.top_k > 0 and (one.top_p < 1 or likelier.sum() >= one.top_k):
        return False
    weights = _weights(logits, logits.max(), one)
    likelier[:id] |= logits[:id] == logits[id]
    before = weights[likelier].sum(dtype=np.float64)
    return bool(weights[id] >= one.min_p and before < (one.top_p - _MASS_ERROR) * _mass(logits, one))


def _weights(logits: NDArray[np.floating], highest: np.floating, one: Sampling) -> NDArray[np.floating]:
    """Probabilities relative to the highest, in the precision of ``logits``."""
    return np.exp((logits - highest) / logits.dtype.type(one.temperature))


def _mass(logits: Logits, one: Sampling) -> float:
    """The sum of the weights that ``min_p`` leaves in the whole row, if ``top_p`` is a share of it."""
    if one.top_p >= 1 or one.top_k > 0:
        return np.inf
    weights = _weights(logits, logits.max(), one)
    if one.min_p > 0:
        weights = weights[weights >= one.min_p]
    return float(weights.sum(dtype=np.float64))


def _settles(likeliest: Logits, one: Sampling, mass: float) -> bool:
    """No token that is not here can be kept. Those equal to the last may lie outside as well."""
    weights = _weights(likeliest.astype(np.float64), np.float64(likeliest[0]), one)
    above = int(np.searchsorted(-likeliest, -likeliest[-1]))
    return bool(
        0 < one.top_k <= above or weights[-1] < one.min_p or weights[:above].sum() >= one.top_p * mass
    )


def _kept(values: Logits, ids: Ids, one: Sampling, mass: float) -> Candidates:
    """What is left of falling ``values`` after each cut in turn."""
    logits = values.astype(np.float64)
    weights = _weights(logits, logits[0], one)
    if one.min_p > 0:
        weights = weights[: max(1, int((weights >= one.min_p).sum()))]
    if one.top_k > 0:
        if one.top_k < len(weights):
            last = logits[one.top_k - 1]
            weights = weights[: int(np.searchsorted(-logits[: len(weights)], -last, side="right"))]
        mass = float(weights.sum())
    count = len(weights)
    if one.top_p < 1:
        before = np.concatenate(([0.0], np.cumsum(weights)[:-1]))
        count = max(1, int((before < (one.top_p - _MASS_ERROR) * mass).sum()))
    return ids[:count], logits[:count]
