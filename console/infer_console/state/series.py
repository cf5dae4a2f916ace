"""History at a fixed interval: what the sparklines draw."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from infer_engine.protocol import Kv, Replica, Totals

from infer_console.state.picture import Series

#: Seconds per sample and samples kept: 30 minutes. A view folds several samples into one cell.
INTERVAL_S = 2.0
SAMPLES = 900

#: What is sampled of a replica and of the fleet.
KEYS = ("kv", "running", "waiting", "tokens_per_s", "ttft_p99", "itl_p99", "queue_wait_p99")


class SeriesSample(NamedTuple):
    """One sample: ``values`` in the order of ``KEYS``; ``taken`` counts the samples up to this one."""

    taken: int
    values: tuple[float | None, ...]


class SeriesSet:
    """One bounded series per key. ``series()`` returns the same dict until the next sample."""

    __slots__ = ("_samples", "_series", "_taken")

    def __init__(self) -> None:
        self._samples: dict[str, deque[float | None]] = {key: deque(maxlen=SAMPLES) for key in KEYS}
        self._series: dict[str, Series] | None = None
        self._taken = 0

    def sample(self, values: Mapping[str, float | None]) -> None:
        """Append one sample per key; a key that is not in ``values`` is unknown, not zero."""
        for key, samples in self._samples.items():
            samples.append(values.get(key))
        self._taken += 1
        self._series = None

    @property
    def is_unknown(self) -> bool:
        return all(value is None for samples in self._samples.values() for value in samples)

    def look_back(
        self,
        series: Mapping[str, Sequence[float | None]],
        step_s: float,
        taken: int | None = None,
        ahead: int = 0,
    ) -> None:
        """Begin with what a server knows of the time before; each of its values stands for ``step_s``, of
        which the last ``ahead`` samples have yet to be. ``taken`` is how many samples that were, where more
        than are kept."""
        times = min(SAMPLES, max(1, round(step_s / INTERVAL_S)))
        told = max((len(values) for values in series.values()), default=0) * times
        end = max(0, told - ahead)
        length = min(SAMPLES, end)
        for key, samples in self._samples.items():
            values = series.get(key, ())
            missing = told - len(values) * times
            samples.clear()
            samples.extend(
                None if at < missing else values[(at - missing) // times] for at in range(end - length, end)
            )
        self._taken = length if taken is None else taken
        self._series = None

    def newest(self) -> SeriesSample:
        """The last one; unknown values before the first."""
        return next(self.backwards(), SeriesSample(0, (None,) * len(KEYS)))

    def backwards(self) -> Iterator[SeriesSample]:
        """All that are kept, the newest first."""
        for back, values in enumerate(
            zip(*(reversed(samples) for samples in self._samples.values()), strict=True)
        ):
            yield SeriesSample(self._taken - back, values)

    def series(self) -> dict[str, Series]:
        if self._series is None:
            self._series = {
                key: Series(INTERVAL_S, tuple(kept), self._taken) for key, kept in self._samples.items()
            }
        return self._series


def joined(samples: Sequence[SeriesSample]) -> dict[str, Series]:
    """The series of samples told one by one, oldest first; those left out between two are unknown. Where the
    count begins anew, so does the series."""
    rows: list[tuple[float | None, ...]] = []
    taken = 0
    for sample in samples:
        if sample.taken <= taken:
            rows.clear()
        elif rows:
            rows += [(None,) * len(KEYS)] * min(sample.taken - taken - 1, SAMPLES)
        taken = sample.taken
        rows.append(sample.values)
    columns = zip(*rows[-SAMPLES:], strict=True) if rows else ((),) * len(KEYS)
    return {key: Series(INTERVAL_S, tuple(column), taken) for key, column in zip(KEYS, columns, strict=True)}


def kv_used_ratio(kv: Kv) -> float | None:
    """Share of the pool that requests hold, 0..1."""
    if kv.used is None or not kv.total:
        return None
    return kv.used / kv.total


def sample_replica(replica: Replica) -> dict[str, float | None]:
    return {
        "kv": kv_used_ratio(replica.kv),
        "running": replica.running,
        "waiting": replica.waiting,
        "tokens_per_s": replica.tokens_per_s,
        "ttft_p99": replica.ttft_s.p99,
        "itl_p99": replica.itl_s.p99,
        "queue_wait_p99": replica.queue_wait_s.p99,
    }


def sample_totals(totals: Totals) -> dict[str, float | None]:
    return {
        "kv": totals.kv_used_ratio,
        "running": totals.running,
        "waiting": totals.waiting,
        "tokens_per_s": totals.tokens_per_s,
        "ttft_p99": totals.ttft_s.p99,
        "itl_p99": totals.itl_s.p99,
        "queue_wait_p99": totals.queue_wait_s.p99,
    }
