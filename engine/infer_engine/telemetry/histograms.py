"""Histograms as Prometheus wants them: cumulative buckets with upper bounds in seconds."""

from bisect import bisect_left
from collections.abc import Sequence


def bounds(numbers: str) -> tuple[float, ...]:
    """Numbers separated by spaces."""
    return tuple(map(float, numbers.split()))


#: vLLM's bounds, so that its dashboards compare like with like.
TTFT_S = bounds("0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560")
#: vLLM's from 10 ms on, and finer below, where small models live.
ITL_S = bounds(
    "0.001 0.0025 0.005 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
)
#: vLLM's from 300 ms on, and finer below: under its first bound a queue cannot be told from none.
REQUEST_S = bounds(
    "0.001 0.005 0.01 0.025 0.05 0.1 0.2 0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 "
    "120 240 480 960 1920 7680"
)
STEP_S = bounds("0.001 0.0025 0.005 0.01 0.02 0.03 0.05 0.075 0.1 0.15 0.25 0.5 1 2.5 5 10")


class Histogram:
    """``upper_bounds`` are inclusive, rising; one more bucket holds what is above them all."""

    def __init__(self, upper_bounds: Sequence[float]) -> None:
        self.bounds = tuple(upper_bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """``(upper bound, observations up to it)``, the last one ``+Inf``."""
        total = 0
        cumulative: list[tuple[str, float]] = []
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            total += count
            cumulative.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        return cumulative
