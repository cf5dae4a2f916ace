"""How many replicas the demand calls for. Pure: what was seen goes in, a count and its reason come out.

Two signals, and never how busy a device is, which says nothing of whether anybody waits: how long requests
wait for admission, and KV pressure, the blocks that are in use or needed by those who wait as a share of what
may be admitted. A replica that is started now helps only after its boot time, so demand is taken as far ahead
as that along its slope. More are recommended once that has been called for throughout UP_HOLD_S, fewer once
fewer would have done throughout DOWN_HOLD_S: a spike or a lull that is over sooner moves nothing.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

from infer_engine.fleet.seconds_words import seconds_words

#: A queue wait (95th percentile, those still waiting included) above this is too long.
WAIT_TARGET_S = 2.0
#: Share of what may be admitted that a replica should have in use.
KV_TARGET = 0.8
UP_HOLD_S = 20.0
DOWN_HOLD_S = 300.0
#: The slope is that of the last so many seconds; samples are kept this far apart.
SLOPE_SPAN_S = 120.0
SAMPLE_S = 5.0
#: Nothing is taken to more than double ahead of its being seen.
MOST_GROWTH = 2.0
#: Until a start was seen.
ASSUMED_BOOT_S = 60.0


@dataclass(frozen=True, slots=True)
class Demand:
    """One moment. Fleet-wide figures; test traffic included."""

    now_s: float
    #: Replicas that admit, and those that are on their way there.
    ready: int
    coming: int
    #: 95th percentile of the wait for admission; None when nobody was admitted or waits.
    queue_wait_p95_s: float | None
    #: Requests that run and that wait, the held ones included.
    running: int
    waiting: int
    #: Blocks in use or needed by those who wait, and blocks that one replica admits up to; None: unknown.
    kv_needed_blocks: int
    kv_per_replica_blocks: int | None


@dataclass(frozen=True, slots=True)
class Recommendation:
    replicas: int
    #: "queue wait p95 12 s over 2 s for 40 s; KV 94 %; boot 95 s → 3 replicas"
    because: str
    #: Share of the ready replicas' admissible blocks that is in use or waited for; None: unknown.
    kv_pressure: float | None
    #: Replicas' worth of KV by which demand grows each minute.
    kv_slope_per_min: float
    boot_s: float


@dataclass(slots=True)
class Scaling:
    """``least`` and ``most`` bound what is recommended."""

    least: int
    most: int
    boot_s: float = ASSUMED_BOOT_S
    #: Moments and demand in replicas' worth of KV.
    _seen: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])
    #: Moments and what was called for.
    _called: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    _over_since_s: float | None = None
    _last: int | None = None

    def recommend(self, demand: Demand) -> Recommendation:
        """To be asked every few seconds; history is kept in samples SAMPLE_S apart."""
        kv = demand.kv_needed_blocks / demand.kv_per_replica_blocks if demand.kv_per_replica_blocks else 0.0
        self._sample(demand.now_s, kv)
        slope_per_s = max(0.0, _slope(self._seen))
        wait_s = demand.queue_wait_p95_s
        over = wait_s is not None and wait_s > WAIT_TARGET_S and demand.waiting > 0
        self._over_since_s = (self._over_since_s or demand.now_s) if over else None
        called = self._called_for(demand, kv, slope_per_s, over=over)
        self._called.append((demand.now_s, called))
        while self._called[0][0] < demand.now_s - DOWN_HOLD_S:
            self._called.popleft()
        present = demand.ready + demand.coming if self._last is None else self._last
        recommended = self._held(demand.now_s, present)
        self._last = recommended
        pressure = kv / demand.ready if demand.ready and demand.kv_per_replica_blocks else None
        because = self._because(demand, pressure, slope_per_s, recommended)
        return Recommendation(recommended, because, pressure, slope_per_s * 60, self.boot_s)

    # --- inside --------------------------------------------------------------------------------------------

    def _sample(self, now_s: float, kv: float) -> None:
        if self._seen and now_s - self._seen[-1][0] < SAMPLE_S:
            return
        self._seen.append((now_s, kv))
        while self._seen[0][0] < now_s - SLOPE_SPAN_S:
            self._seen.popleft()

    def _called_for(self, demand: Demand, kv: float, slope_per_s: float, *, over: bool) -> int:
        ahead = min(kv + slope_per_s * self.boot_s, kv * MOST_GROWTH)
        called = math.ceil(ahead / KV_TARGET - 1e-9)
        if over:
            # Those who wait need as much as as many of those who run.
            ready = max(1, demand.ready)
            share = (demand.running + demand.waiting) / max(1, demand.running)
            called = max(called, ready + 1, math.ceil(ready * min(MOST_GROWTH, share) - 1e-9))
        return min(self.most, max(self.least, called))

    def _held(self, now_s: float, present: int) -> int:
        """What was called for throughout the hold, if that is more or fewer than ``present``."""
        lately = [count for at_s, count in self._called if at_s >= now_s - UP_HOLD_S]
        seen_s = now_s - self._called[0][0]
        if seen_s >= UP_HOLD_S - SAMPLE_S and min(lately) > present:
            return min(lately)
        if seen_s >= DOWN_HOLD_S - SAMPLE_S:
            most = max(count for _, count in self._called)
            if most < present:
                return most
        return min(self.most, max(self.least, present))

    def _because(self, demand: Demand, pressure: float | None, slope_per_s: float, recommended: int) -> str:
        wait_s = demand.queue_wait_p95_s
        if wait_s is None:
            parts = ["nobody waits"]
        elif self._over_since_s is not None:
            since_s = demand.now_s - self._over_since_s
            parts = [f"queue wait p95 {seconds_words(wait_s)} over {WAIT_TARGET_S:g} s for {since_s:.0f} s"]
        else:
            parts = [f"queue wait p95 {seconds_words(wait_s)}"]
        if pressure is not None:
            parts.append(f"KV {pressure:.0%}".replace("%", " %"))
        if slope_per_s * self.boot_s >= 0.05:
            parts.append(f"growing by {slope_per_s * 60:.1f} replicas a minute")
        noun = "replica" if recommended == 1 else "replicas"
        return "; ".join([*parts, f"boot {self.boot_s:.0f} s"]) + f" → {recommended} {noun}"


def _slope(seen: Iterable[tuple[float, float]]) -> float:
    """Per second: the median of the slopes between any two samples, which a short spike does not tilt; 0 of
    fewer than four samples."""
    points = list(seen)
    if len(points) < 4:
        return 0.0
    return median((b - a) / (b_s - a_s) for (a_s, a), (b_s, b) in combinations(points, 2))
