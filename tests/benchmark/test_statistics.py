import pytest
from infer_engine.benchmark.batching import Roofline
from infer_engine.benchmark.ceilings import Ceilings
from infer_engine.benchmark.results import result
from infer_engine.benchmark.statistics import paired, percentile


def test_a_percentile_is_a_value_that_occurred() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.01) == 7
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_the_median_counts_and_every_sample_is_kept() -> None:
    made = result("m", "s", [5.0, 1.0, 2.0], wanted=2.0, bound="most")
    assert (made.value, made.met, made.samples) == (2.0, True, (5.0, 1.0, 2.0))
    assert result("m", "s", [5.0], wanted=2.0, bound="most").met is False
    assert result("m", "s", []).value is None


def test_a_drift_of_the_machine_is_no_difference() -> None:
    without = [100.0 * 0.97**step for step in range(0, 21, 2)]
    with_it = [100.0 * 0.97**step for step in range(1, 21, 2)]
    found = paired(without, with_it)
    assert found.ratio == pytest.approx(1.0, abs=0.002)
    assert found.inside


def test_a_loss_beyond_the_noise_is_outside_the_band() -> None:
    without = [100.0, 102.0, 99.0, 101.0, 100.0, 98.0]
    assert not paired(without, [80.0] * 5).inside
    assert paired(without, [100.0] * 5).inside
    low, high = paired(without, [100.0] * 5).band
    assert low < 1 < high


def test_windows_that_do_not_alternate_are_refused() -> None:
    with pytest.raises(ValueError, match="need 3"):
        paired([1.0, 1.0], [1.0, 1.0])


def test_the_roofline_is_bound_by_memory_first_and_by_arithmetic_later() -> None:
    machine = Ceilings(read_bytes_per_s=20e9, matmul_flops_per_s=100e9)
    best = Roofline(weights=100_000_000, kv_bytes=0, machine=machine)
    assert best.step_s(1) == 0.01  # 200 MB at 20 GB/s
    assert best.step_s(4) == best.step_s(1)
    assert best.step_s(10) == 0.02  # 2 GFLOP at 100 GFLOP/s
    assert best.tokens_per_s(10) == best.tokens_per_s(20) == 500
    assert Roofline(100_000_000, 20_000_000, machine).step_s(1) == 0.011
