"""The time to first token of real requests, before test traffic began and since."""

import math
from collections import deque
from collections.abc import Callable

from infer_engine.fleet.measures import Measures, Sample

#: What came this long before the traffic counts as before it.
BASELINE_S = 60.0
#: Fewer samples than this tell nothing.
FEWEST_SAMPLES = 5
MOST_SAMPLES = 512


class RealTtft:
    """Hears of every first token from its making on; test traffic is left out. ``clock`` is monotonic."""

    def __init__(self, measures: Measures, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: When each came, and how long it took.
        self._samples: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)
        self._began_s = clock()
        #: p95 of the minute before ``begin``; None when too few came in it.
        self.baseline_s: float | None = None
        measures.subscribe(self._hear)

    def begin(self) -> None:
        """Test traffic begins now."""
        self._began_s = self._clock()
        self.baseline_s = self._p95(self._began_s - BASELINE_S)

    def p95_s(self) -> float | None:
        """Since ``begin``; None while it says nothing."""
        return self._p95(self._began_s)

    def _hear(self, sample: Sample) -> None:
        if sample.measure == "ttft" and not sample.synthetic:
            self._samples.append((self._clock(), sample.value_s))

    def _p95(self, since_s: float) -> float | None:
        values = sorted(value_s for at_s, value_s in self._samples if at_s >= since_s)
        return values[math.ceil(0.95 * len(values)) - 1] if len(values) >= FEWEST_SAMPLES else None
