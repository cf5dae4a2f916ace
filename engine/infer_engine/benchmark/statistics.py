"""Few numbers from few repeats: medians, spreads, and whether a difference is more than noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all do not exceed; ValueError where there is none."""
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Paired:
    """Interleaved windows without (A) and with (B) something, compared as ratios of neighbours: slow drifts
    of the machine cancel out."""

    #: The median of B over the mean of the two A's around it.
    ratio: float
    #: What A over A reaches by itself, from neighbour to neighbour: the 5th and the 95th percentile.
    band: tuple[float, float]

    @property
    def inside(self) -> bool:
        return self.band[0] <= self.ratio <= self.band[1]


def paired(without: Sequence[float], with_it: Sequence[float]) -> Paired:
    """``without`` has one window more than ``with_it``: A B A B … A. ValueError for anything else."""
    if len(without) != len(with_it) + 1 or not with_it:
        raise ValueError(f"{len(with_it)} windows need {len(with_it) + 1} around them, not {len(without)}")
    around = list(pairwise(without))
    ratios = [2 * value / (before + after) for value, (before, after) in zip(with_it, around, strict=True)]
    # Both directions: which of two equals came first says nothing.
    noise = [later / earlier for earlier, later in around] + [earlier / later for earlier, later in around]
    return Paired(median(ratios), (percentile(noise, 0.05), percentile(noise, 0.95)))
