"""Sliding windows: percentiles within a hundredth, memory bounded, the old forgotten, those still waiting
counted."""

from collections import Counter
from random import Random

import pytest
from infer_engine.telemetry.windows import (
    MOST_BUCKETS,
    LatencyWindow,
    RateWindow,
    bucket_of,
    percentiles,
    quantile,
    with_ages,
)


@pytest.mark.parametrize("seed", range(3))
def test_percentiles_are_within_one_percent_of_the_exact_ones(seed: int) -> None:
    random = Random(seed)
    values = [random.lognormvariate(-3, 2) for _ in range(5000)]
    window = LatencyWindow()
    for value in values:
        window.add(value, 10.0)
    exact = sorted(values)
    found = percentiles(window.counts(10.0))
    assert found.p50 == pytest.approx(exact[2499], rel=0.0101)
    assert found.p95 == pytest.approx(exact[4749], rel=0.0101)
    assert found.p99 == pytest.approx(exact[4949], rel=0.0101)


def test_nothing_seen_is_unknown() -> None:
    assert quantile({}, 0.5) is None
    assert percentiles(LatencyWindow().counts(5.0)).p99 is None


def test_one_sample_is_every_percentile() -> None:
    window = LatencyWindow()
    window.add(0.25, 3.0)
    found = percentiles(window.counts(3.0))
    assert found.p50 == found.p95 == found.p99 == pytest.approx(0.25, rel=0.0101)


def test_samples_leave_after_the_span() -> None:
    window = LatencyWindow(span_s=60, slots=12)
    window.add(1.0, 100.0)
    window.add(9.0, 130.0)
    assert sum(window.counts(154.0).values()) == 2
    assert quantile(window.counts(165.0), 0.0) == pytest.approx(9.0, rel=0.0101)
    assert not window.counts(200.0)


def test_memory_does_not_grow_with_the_rate() -> None:
    random = Random(1)
    window = LatencyWindow(span_s=60, slots=12)
    for number in range(30_000):
        window.add(random.expovariate(1) ** 8, number / 100)
    assert len(window.counts(300.0)) <= MOST_BUCKETS + 1
    assert sum(window.counts(300.0).values()) <= 6_001


def test_extremes_have_buckets() -> None:
    assert bucket_of(0.0) == bucket_of(-1.0) == 0
    assert bucket_of(1e300) == MOST_BUCKETS
    assert quantile({MOST_BUCKETS: 1}, 0.5) == pytest.approx(4.2e4, rel=0.1)


def test_survivors_alone_flatter() -> None:
    counts = Counter({bucket_of(0.1): 10})
    assert quantile(counts, 0.99) == pytest.approx(0.1, rel=0.0101)
    assert quantile(with_ages(counts, [30.0, 40.0]), 0.99) == pytest.approx(40.0, rel=0.0101)
    assert sum(counts.values()) == 10, "the counts given are left alone"


def test_rate_over_the_time_the_window_covers() -> None:
    window = RateWindow(5.0, opened_s=1000.0)
    for tenth in range(20):
        window.add(3, 1000.0 + tenth / 10)
    assert window.per_s(1002.0) == pytest.approx(30.0)
    assert window.total(1002.0) == 60
    assert window.per_s(1004.0) == pytest.approx(15.0)
    assert window.per_s(1020.0) == 0.0
    assert window.total(1020.0) == 0
