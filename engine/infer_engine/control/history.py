"""Series of the past hour: what sparklines need of the time before somebody looked."""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infer_engine.protocol import History, Replica, Status, Totals

#: Kept: an hour, whatever the interval.
SPAN_S = 3_600.0
#: Seconds between two samples of a small fleet; a large one is looked at less often (see ``interval_s``).
INTERVAL_S = 2.0
#: Means over a step; of the others the highest.
MEANS = ("kv", "running", "waiting", "tokens_per_s")
PEAKS = ("ttft_p95", "ttft_p99", "itl_p95", "itl_p99", "queue_wait_p99")
KEYS = (*MEANS, *PEAKS)

_NAN = math.nan


def interval_s(replicas: int) -> float:
    """One replica's sample takes about 0.1 ms: of 1,000 replicas, that is about 1 % of a core."""
    return INTERVAL_S if replicas <= 64 else 10.0


class _Ring:
    """The newest samples of all keys of one thing; NaN where it was unknown. 4 bytes a number."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._numbers = {key: array("f", [_NAN]) * length for key in KEYS}

    def put(self, at: int, values: Sequence[float | None]) -> None:
        for numbers, value in zip(self._numbers.values(), values, strict=True):
            numbers[at % self._length] = _NAN if value is None else value

    def blank(self, at: int) -> None:
        for numbers in self._numbers.values():
            numbers[at % self._length] = _NAN

    def series(self, first: int, last: int, per_step: int) -> dict[str, list[float | None]]:
        """Samples ``first`` to ``last`` (not included), ``per_step`` in one."""
        return {
            key: [
                _folded(key, [numbers[at % self._length] for at in range(begin, begin + per_step)])
                for begin in range(first, last, per_step)
            ]
            for key, numbers in self._numbers.items()
        }


@dataclass(slots=True)
class HistoryKeeper:
    """``sample`` is called every ``sample_s``; ``wall`` is Unix seconds. The hour of one replica takes 65 kB
    at the shorter interval and 13 kB at the longer one."""

    sample_s: float
    wall: Callable[[], float]
    _taken: int = 0
    _last_at: float | None = None
    _fleet: _Ring = field(init=False)
    _replicas: dict[str, _Ring] = field(default_factory=dict[str, _Ring])

    def __post_init__(self) -> None:
        self._fleet = _Ring(self.length)

    @property
    def length(self) -> int:
        return int(SPAN_S / self.sample_s)

    def sample(self, status: Status) -> None:
        """Take one. When the server could not for a while, that time is unknown."""
        now_at = self.wall()
        if self._last_at is not None:
            missed = round((now_at - self._last_at) / self.sample_s) - 1
            for _ in range(max(0, min(missed, self.length))):
                self._begin()
        self._last_at = now_at
        at = self._begin()
        self._fleet.put(at, _of_totals(status.totals))
        present = {replica.id for replica in status.replicas}
        for gone in self._replicas.keys() - present:
            del self._replicas[gone]
        for replica in status.replicas:
            ring = self._replicas.get(replica.id)
            if ring is None:
                ring = self._replicas[replica.id] = _Ring(self.length)
            ring.put(at, _of_replica(replica))

    def _begin(self) -> int:
        at = self._taken
        self._taken += 1
        self._fleet.blank(at)
        for ring in self._replicas.values():
            ring.blank(at)
        return at

    def document(self, seconds: float, step_s: float, replicas: Sequence[str], *, simulated: bool) -> History:
        """The last ``seconds`` (at most SPAN_S) in steps of about ``step_s``. Steps begin at multiples of
        themselves, so that the same moment is in the same step whenever one asks."""
        per_step = max(1, round(step_s / self.sample_s))
        last = -(-self._taken // per_step) * per_step
        steps = max(1, math.ceil(seconds / (per_step * self.sample_s)))
        oldest = -(-max(0, self._taken - self.length) // per_step) * per_step
        first = max(oldest, last - steps * per_step)
        # The last step may not be over: what it does not have yet is not the ring's oldest.
        ahead = last - self._taken
        return History(
            simulated=simulated,
            until_at=(self._last_at if self._last_at is not None else self.wall()) + ahead * self.sample_s,
            step_s=per_step * self.sample_s,
            sample_s=self.sample_s,
            fleet=self._series(self._fleet, first, last, per_step),
            replicas={
                each: self._series(self._replicas[each], first, last, per_step)
                for each in replicas
                if each in self._replicas
            },
        )

    def _series(self, ring: _Ring, first: int, last: int, per_step: int) -> dict[str, list[float | None]]:
        for at in range(self._taken, last):
            ring.blank(at)
        return ring.series(first, last, per_step)


def _folded(key: str, numbers: Sequence[float]) -> float | None:
    known = [number for number in numbers if not math.isnan(number)]
    if not known:
        return None
    # Six digits are what a 4-byte number has.
    return float(f"{sum(known) / len(known) if key in MEANS else max(known):.6g}")


def _of_replica(replica: Replica) -> tuple[float | None, ...]:
    kv = replica.kv
    return (
        kv.used / kv.total if kv.used is not None and kv.total else None,
        replica.running,
        replica.waiting,
        replica.tokens_per_s,
        replica.ttft_s.p95,
        replica.ttft_s.p99,
        replica.itl_s.p95,
        replica.itl_s.p99,
        replica.queue_wait_s.p99,
    )


def _of_totals(totals: Totals) -> tuple[float | None, ...]:
    return (
        totals.kv_used_ratio,
        totals.running,
        totals.waiting,
        totals.tokens_per_s,
        totals.ttft_s.p95,
        totals.ttft_s.p99,
        totals.itl_s.p95,
        totals.itl_s.p99,
        totals.queue_wait_s.p99,
    )
