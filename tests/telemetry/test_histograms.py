import pytest
from hypothesis import given
from hypothesis import strategies as st
from infer_engine.telemetry.histograms import ITL_S, REQUEST_S, STEP_S, TTFT_S, Histogram


@given(values=st.lists(st.floats(0, 100), max_size=40))
def test_buckets_count_what_is_at_or_below_their_bound(values: list[float]) -> None:
    histogram = Histogram((0.1, 1.0, 10.0))
    for value in values:
        histogram.observe(value)
    assert histogram.buckets() == [
        ("0.1", sum(value <= 0.1 for value in values)),
        ("1.0", sum(value <= 1.0 for value in values)),
        ("10.0", sum(value <= 10.0 for value in values)),
        ("+Inf", len(values)),
    ]
    assert histogram.sum == pytest.approx(sum(values))


@pytest.mark.parametrize("bounds", [TTFT_S, ITL_S, REQUEST_S, STEP_S])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
