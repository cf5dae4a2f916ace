"""What test traffic does to users, in figures: before it began, and since."""

from collections.abc import Callable

from infer_engine.fleet.measures import Measures, Sample
from infer_engine.protocol import TrafficFigures
from infer_engine.telemetry.windows import LatencyWindow, quantile

WINDOW_S = 60.0
_SHOWN = ("ttft", "itl", "queue_wait")


class _Windows:
    def __init__(self) -> None:
        self.of = {measure: LatencyWindow(WINDOW_S) for measure in _SHOWN}

    def add(self, sample: Sample, now_s: float) -> None:
        window = self.of.get(sample.measure)
        if window is not None:
            window.add(sample.value_s, now_s, sample.times)

    def figures(self, now_s: float, kv_used_ratio: float | None) -> TrafficFigures:
        counts = {measure: window.counts(now_s) for measure, window in self.of.items()}
        return TrafficFigures(
            requests=counts["ttft"].total(),
            ttft_p95_s=quantile(counts["ttft"], 0.95),
            itl_p95_s=quantile(counts["itl"], 0.95),
            queue_wait_p95_s=quantile(counts["queue_wait"], 0.95),
            kv_used_ratio=kv_used_ratio,
        )


class TrafficEffect:
    """Hears of every sample from its making on. ``clock`` is monotonic; ``kv`` gives the share of the fleet's
    KV that is used."""

    def __init__(
        self, measures: Measures, clock: Callable[[], float], kv: Callable[[], float | None]
    ) -> None:
        self._clock = clock
        self._kv = kv
        #: Of users, whether test traffic runs or not.
        self._always = _Windows()
        #: Since the last beginning, of users and of test requests.
        self._users = _Windows()
        self._test = _Windows()
        self.before: TrafficFigures | None = None
        measures.subscribe(self._hear)

    def begin(self) -> None:
        """Test traffic begins now."""
        self.before = self._always.figures(self._clock(), self._kv())
        self._users, self._test = _Windows(), _Windows()

    def now(self) -> tuple[TrafficFigures, TrafficFigures]:
        """Of users and of test requests, since it began."""
        now_s, kv = self._clock(), self._kv()
        return self._users.figures(now_s, kv), self._test.figures(now_s, kv)

    def _hear(self, sample: Sample) -> None:
        now_s = self._clock()
        if sample.synthetic:
            self._test.add(sample, now_s)
            return
        self._always.add(sample, now_s)
        self._users.add(sample, now_s)
