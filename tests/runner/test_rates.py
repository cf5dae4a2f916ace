"""What preemption costs on this runner, by a clock that the runner moves."""

import pytest
from infer_engine.core.plan import Plan
from infer_engine.replica.worker import USUAL_SWAP_BYTES_PER_S, host_pool
from infer_engine.runner.rates import measured
from infer_engine.runner.runner import RunnerInfo
from infer_engine.runner.step_output import StepOutput
from infer_engine.settings import ReplicaSettings

BLOCK_BYTES = 16 * 1000


class TimedRunner:
    """Takes 10 ms a step, 1 ms a token and 2 ms a block."""

    def __init__(self, *, host_blocks: int = 8, simulated: bool = False) -> None:
        self.info = RunnerInfo(
            model="timed",
            vocab_size=10,
            context_length=100,
            kv_blocks=20,
            block_size=16,
            kv_bytes_per_token=1000,
            weight_bytes=1,
            device="cpu",
            dtype="fp32",
            simulated=simulated,
            host_blocks=host_blocks,
        )
        self.now_s = 0.0

    def execute(self, plan: Plan) -> StepOutput:
        blocks = len(plan.swap_out) + len(plan.swap_in)
        self.now_s += 0.010 + 0.001 * sum(chunk.count for chunk in plan.chunks) + 0.002 * blocks
        return StepOutput()

    def close(self) -> None: ...


def test_both_rates_are_measured() -> None:
    runner = TimedRunner()
    info = measured(runner, lambda: runner.now_s)
    assert info.prefill_tokens_per_s == pytest.approx(64 / 0.074)
    assert info.swap_bytes_per_s == pytest.approx(BLOCK_BYTES / 0.002)


def test_without_a_host_pool_there_is_nothing_to_move() -> None:
    runner = TimedRunner(host_blocks=0)
    assert measured(runner, lambda: runner.now_s).swap_bytes_per_s is None


def test_a_clock_that_stands_still_measures_no_bandwidth_and_breaks_nothing() -> None:
    assert measured(TimedRunner(), lambda: 0.0).swap_bytes_per_s is None


def test_a_simulated_runner_is_not_measured() -> None:
    runner = TimedRunner(simulated=True)
    assert measured(runner, lambda: runner.now_s) is runner.info
    assert runner.now_s == 0.0


def test_the_settings_go_before_what_was_measured_and_that_before_what_is_usual() -> None:
    runner = TimedRunner()
    info = measured(runner, lambda: runner.now_s)
    # A block takes 4 ms there and back, its 16 tokens 18 ms to compute again.
    assert host_pool(ReplicaSettings(), info).prefers_swap(1, 16)
    assert not host_pool(ReplicaSettings(recompute_tokens_per_s=1e5), info).prefers_swap(1, 16)
    assert not host_pool(ReplicaSettings(swap_bytes_per_s=1e5), info).prefers_swap(1, 16)
    usual_s = 2 * BLOCK_BYTES / USUAL_SWAP_BYTES_PER_S
    assert host_pool(ReplicaSettings(), runner.info).prefers_swap(1, 1) == (usual_s < 0.001)
