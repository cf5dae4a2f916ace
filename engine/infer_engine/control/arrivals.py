"""When test requests arrive: pure and seeded, so that the same seed gives the same moments."""

from collections.abc import Iterator, Sequence
from random import Random

from infer_engine.protocol import TraceRequest

#: Requests of one burst arrive together; one burst stands for this many seconds of the asked rate.
BURST_EVERY_S = 5.0


def open_loop(seed: int, rate_per_s: float, *, bursts: bool = False) -> Iterator[float]:
    """Seconds from the beginning to each arrival, for ever and rising: a Poisson process that never waits for
    answers. With ``bursts`` whole bursts are what arrives so, at the same mean rate."""
    random = Random(f"{seed}/arrivals")
    at_once = max(1, round(rate_per_s * BURST_EVERY_S)) if bursts else 1
    at_s = 0.0
    while True:
        at_s += random.expovariate(rate_per_s / at_once)
        for _ in range(at_once):
            yield at_s


def recorded(trace: Sequence[TraceRequest]) -> Iterator[float]:
    """As they were recorded."""
    return (each.arrival_s for each in trace)
