"""How many replicas the demand calls for. Pure: what was seen goes in, a count and its reason come out.

Two signals, and never how busy a device is, which says nothing of whether anybody waits: how long requests
wait for admission, and KV pressure, the blocks that are in use or needed by those who wait as a share of what
may be admitted. A replica that is started now helps only after its boot time, so demand is taken as far ahead
as that along its slope. More are recommended once that has been called for throughout UP_HOLD_S, fewer once
fewer would have done throughout DOWN_HOLD_S: a spike or a lull that is over sooner moves nothing. Fewer would
not have done while requests waited too long or the promised latencies were not kept, whatever memory says,
nor is it known while a replica that should be ready is not.
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
    #: Requests that one replica runs at most; None: unknown.
    slots_per_replica: int | None = None
    #: Replicas that should be ready and are not: they load, failed or are fenced.
    unready: int = 0
    #: Latencies are over what was promised.
    late: bool = False


@dataclass(frozen=True, slots=True)
class Recommendation:
    replicas: int
    #: "queue wait p95 12 s over 2 s for 40 s; KV wanted 94 %; boot 95 s → 3 replicas"
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
    #: Moments and how many would have done: not below what was there while something was wrong.
    _enough: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    _over_since_s: float | None = None
    #: When fewer were out of the question last.
    _wrong_s: float | None = None
    #: More than there are, recommended until fewer would have done for long or they are there.
    _raised: int | None = None

    def recommend(self, demand: Demand) -> Recommendation:
        """To be asked every few seconds; history is kept in samples SAMPLE_S apart."""
        kv = demand.kv_needed_blocks / demand.kv_per_replica_blocks if demand.kv_per_replica_blocks else 0.0
        self._sample(demand.now_s, kv)
        slope_per_s = max(0.0, _slope(self._seen))
        wait_s = demand.queue_wait_p95_s
        over = wait_s is not None and wait_s > WAIT_TARGET_S and demand.waiting > 0
        self._over_since_s = (self._over_since_s or demand.now_s) if over else None
        if demand.unready or demand.late or (wait_s is not None and wait_s > WAIT_TARGET_S):
            self._wrong_s = demand.now_s
        called = self._called_for(demand, kv, slope_per_s, over=over)
        self._called.append((demand.now_s, called))
        while self._called[0][0] < demand.now_s - DOWN_HOLD_S:
            self._called.popleft()
        self._enough.append((demand.now_s, max(called, self._slots_for(demand))))
        while self._enough[0][0] < demand.now_s - DOWN_HOLD_S:
            self._enough.popleft()
        recommended = self._held(demand.now_s, demand.ready + demand.coming)
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

    def _slots_for(self, demand: Demand) -> int:
        """Replicas on which all would run at once with slots to spare."""
        if not demand.slots_per_replica:
            return 0
        asked = (demand.running + demand.waiting) / demand.slots_per_replica
        return min(self.most, math.ceil(asked / KV_TARGET - 1e-9))

    def _held(self, now_s: float, present: int) -> int:
        """What was called for throughout the hold, if that is more than are there; fewer, if that would have
        done throughout the longer one and nothing was wrong meanwhile."""
        lately = [count for at_s, count in self._called if at_s >= now_s - UP_HOLD_S]
        seen_s = now_s - self._called[0][0]
        raised = min(self._raised or 0, max(count for _, count in self._called))
        if seen_s >= UP_HOLD_S - SAMPLE_S:
            raised = max(raised, min(lately))
        if raised > present:
            self._raised = raised
            return raised
        self._raised = None
        calm_s = seen_s if self._wrong_s is None else min(seen_s, now_s - self._wrong_s)
        if calm_s >= DOWN_HOLD_S - SAMPLE_S:
            present = min(present, max(count for _, count in self._enough))
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
            # More than all of it where many wait: not to be taken for what is used.
            parts.append(f"KV wanted {pressure:.0%}".replace("%", " %"))
        if slope_per_s * self.boot_s >= 0.05:
            parts.append(f"growing by {slope_per_s * 60:.1f} replicas a minute")
        present = demand.ready + demand.coming
        if recommended < present:
            parts.append("fewer would have done for 5 min")
        elif recommended > present and self._called[-1][1] < recommended:
            parts.append("called for within the last 5 min")
        else:
            parts.append(f"boot {self.boot_s:.0f} s")
        noun = "replica" if recommended == 1 else "replicas"
        return "; ".join(parts) + f" → {recommended} {noun}"


def _slope(seen: Iterable[tuple[float, float]]) -> float:
    """Per second: the median of the slopes between any two samples, which a short spike does not tilt; 0 of
    fewer than four samples."""
    points = list(seen)
    if len(points) < 4:
        return 0.0
    return median((b - a) / (b_s - a_s) for (a_s, a), (b_s, b) in combinations(points, 2))
