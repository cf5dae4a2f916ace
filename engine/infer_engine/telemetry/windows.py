"""Latency percentiles and rates over a sliding window, in bounded memory and without a clock of their own."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from infer_engine.protocol import Percentiles

#: Samples are counted in buckets this much wider than the one before: a percentile is off by at most 1 %.
BUCKET_GROWTH = 1.02
#: The first bucket holds everything below this.
SMALLEST_S = 1e-5
#: The last bucket holds everything above SMALLEST_S x BUCKET_GROWTH ** MOST_BUCKETS (about 14 hours).
MOST_BUCKETS = 1120

_LOG_GROWTH = math.log(BUCKET_GROWTH)


class LatencyWindow:
    """Durations seen during the last ``span_s`` seconds, in at most ``slots`` x MOST_BUCKETS counters however
    many there were. Old ones leave a slot (``span_s / slots``) at a time."""

    def __init__(self, span_s: float = 60.0, slots: int = 12) -> None:
        self._slot_s = span_s / slots
        self._slots_kept = slots
        self._slots: deque[tuple[int, Counter[int]]] = deque()

    def add(self, value_s: float, now_s: float, times: int = 1) -> None:
        slot = self._expire(now_s)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1][bucket_of(value_s)] += times

    def counts(self, now_s: float) -> Counter[int]:
        """Samples per bucket. Counts of several windows add up, so a fleet's percentiles come from all
        samples."""
        self._expire(now_s)
        merged: Counter[int] = Counter()
        for _, counter in self._slots:
            merged.update(counter)
        return merged

    def _expire(self, now_s: float) -> int:
        slot = int(now_s // self._slot_s)
        while self._slots and self._slots[0][0] <= slot - self._slots_kept:
            self._slots.popleft()
        return slot


class RateWindow:
    """How much was counted during the last ``span_s`` seconds, and per second of them."""

    def __init__(self, span_s: float, opened_s: float, slots: int = 10) -> None:
        self._slot_s = span_s / slots
        self._slots_kept = slots
        self._opened_s = opened_s
        self._slots: deque[list[int]] = deque()

    def add(self, count: int, now_s: float) -> None:
        slot = self._expire(now_s)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append([slot, 0])
        self._slots[-1][1] += count

    def total(self, now_s: float) -> int:
        self._expire(now_s)
        return sum(count for _, count in self._slots)

    def per_s(self, now_s: float) -> float:
        """The denominator is the time that the window really covers: less than its span just after it
        opened."""
        slot = self._expire(now_s)
        begins_s = max((slot - self._slots_kept + 1) * self._slot_s, self._opened_s)
        return self.total(now_s) / max(now_s - begins_s, self._slot_s)

    def _expire(self, now_s: float) -> int:
        slot = int(now_s // self._slot_s)
        while self._slots and self._slots[0][0] <= slot - self._slots_kept:
            self._slots.popleft()
        return slot


def bucket_of(value_s: float) -> int:
    if value_s <= SMALLEST_S:
        return 0
    return min(1 + int(math.log(value_s / SMALLEST_S) / _LOG_GROWTH), MOST_BUCKETS)


def with_ages(counts: Mapping[int, int], ages_s: Iterable[float]) -> Counter[int]:
    """``counts`` plus the ages of those that have not arrived yet: survivors alone flatter."""
    merged = Counter(counts)
    for age_s in ages_s:
        merged[bucket_of(age_s)] += 1
    return merged


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The sample at ``share`` (nearest rank) in seconds; None without samples."""
    total = sum(counts.values())
    if not total:
        return None
    rank = max(1, math.ceil(share * total))
    seen = 0
    bucket = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            break
    return SMALLEST_S * BUCKET_GROWTH ** (bucket - 0.5) if bucket else SMALLEST_S


def percentiles(counts: Mapping[int, int]) -> Percentiles:
    return Percentiles(p50=quantile(counts, 0.5), p95=quantile(counts, 0.95), p99=quantile(counts, 0.99))
