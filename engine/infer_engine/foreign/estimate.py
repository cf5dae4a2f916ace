"""Percentiles out of histogram buckets: estimates, as good as the buckets are narrow."""

import math

from infer_engine.foreign.page import Buckets
from infer_engine.protocol import Percentiles, QueueWait


def since(now: Buckets, before: Buckets) -> Buckets:
    """What was observed between two readings; empty where they do not fit together."""
    if now.keys() != before.keys():
        return {}
    grown = {bound: now[bound] - before[bound] for bound in now}
    return grown if all(count >= 0 for count in grown.values()) else {}


def quantile(buckets: Buckets, share: float) -> float | None:
    """Taken to be spread evenly within its bucket. What lies beyond the highest finite bound is told as that
    bound, which is then the least it can be. None where nothing was observed."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound in bounds:
        if math.isinf(bound):
            return low
        if buckets[bound] >= wanted:
            inside = buckets[bound] - below
            return low + (bound - low) * ((wanted - below) / inside if inside > 0 else 1.0)
        low, below = bound, buckets[bound]
    return low


def percentiles(buckets: Buckets) -> Percentiles:
    return Percentiles(quantile(buckets, 0.50), quantile(buckets, 0.95), quantile(buckets, 0.99))


def queue_wait(buckets: Buckets) -> QueueWait:
    return QueueWait(quantile(buckets, 0.50), quantile(buckets, 0.99))


def merged(each: list[Buckets]) -> Buckets:
    """One histogram of several with the same bounds; those with others are left out."""
    told = [buckets for buckets in each if buckets]
    sums: dict[float, float] = dict(told[0]) if told else {}
    for buckets in told[1:]:
        if buckets.keys() == sums.keys():
            sums = {bound: sums[bound] + buckets[bound] for bound in sums}
    return sums


def merged_unlike(each: list[Buckets]) -> Buckets:
    """One histogram of several whose bounds may differ: what lies between two bounds is taken to be spread
    evenly there, as ``quantile`` takes it. Beyond the lowest of their highest finite bounds nothing can be
    told of all of them."""
    told = [buckets for buckets in each if any(not math.isinf(bound) for bound in buckets)]
    if alike(told):
        return merged(told)
    highest = min(max(bound for bound in buckets if not math.isinf(bound)) for buckets in told)
    bounds = sorted({bound for buckets in told for bound in buckets if bound <= highest})
    sums = {bound: sum(_at_most(buckets, bound) for buckets in told) for bound in bounds}
    return {**sums, math.inf: sum(buckets[max(buckets)] for buckets in told)}


def alike(each: list[Buckets]) -> bool:
    """Whether those that are told have the same bounds."""
    return len({frozenset(buckets) for buckets in each if buckets}) <= 1


def _at_most(buckets: Buckets, bound: float) -> float:
    """Observations up to ``bound``."""
    low, below = 0.0, 0.0
    for upper in sorted(buckets):
        if upper >= bound:
            inside = buckets[upper] - below
            share = 1.0 if upper == bound or upper <= low else (bound - low) / (upper - low)
            return below + inside * share
        low, below = upper, buckets[upper]
    return below
