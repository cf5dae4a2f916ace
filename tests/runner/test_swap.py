"""A sequence that was moved to the host and back generates what it would have undisturbed (fp32)."""

from pathlib import Path

import pytest
import torch
from infer_engine.core.blocks import BlockPool
from infer_engine.core.plan import Plan
from infer_engine.core.swap import HostPool
from infer_engine.model.sampling import Sampling
from infer_engine.runner.load import load_runner
from infer_engine.settings import ReplicaSettings
from support.running import make_request, make_runner, run_all

SAMPLED = Sampling(temperature=0.9, top_p=0.95, seed=11)


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_preemption_by_swap_changes_nothing(tiny_path: Path, tiny_cache: None, prefix_cache: bool) -> None:
    def batch() -> list:
        return [
            make_request(name, range(3 + name, 3 + name + 7 * name + 1), 24, sampling=SAMPLED)
            for name in range(6)
        ]

    runner = make_runner(
        model=str(tiny_path), dtype="fp32", kv_blocks=30, block_size=4, host_blocks=20, preempt_mode="swap"
    )
    assert runner.info.host_blocks == 20
    undisturbed, swapped = batch(), batch()
    for request in undisturbed:
        run_all(runner, [request])
    pool = BlockPool(30, 4, prefix_cache=prefix_cache)
    scheduler = run_all(runner, swapped, pool=pool, host=HostPool(20, "swap"))
    counters = scheduler.counters
    assert min(counters.swaps, counters.swapped_in_blocks) > 1
    assert [request.output for request in swapped] == [request.output for request in undisturbed]
    runner.close()


def test_a_host_pool_is_no_larger_than_the_pool_and_absent_where_recompute_is_forced(
    tiny_path: Path, tiny_cache: None
) -> None:
    for mode, host_blocks in (("auto", 12), ("recompute", 0)):
        settings = ReplicaSettings(model=str(tiny_path), kv_blocks=12, preempt_mode=mode)  # type: ignore[arg-type]
        runner = load_runner(settings, lambda _fraction, _what: None)
        assert runner.info.host_blocks == host_blocks
        runner.close()


def test_a_block_is_copied_before_the_same_step_moves_another_into_it(
    tiny_path: Path, tiny_cache: None
) -> None:
    runner = make_runner(model=str(tiny_path), dtype="fp32", kv_blocks=4, block_size=4, host_blocks=2)
    storage = runner._pool._storage.view(2, -1, 4, 64)  # [layers, planes, blocks, elements]
    with torch.inference_mode():
        for block in range(4):
            storage[:, :, block] = float(block)
    runner.execute(Plan(step=1, swap_out=[(3, 0)]))
    runner.execute(Plan(step=2, swap_out=[(2, 1)], copies=[(1, 2)], swap_in=[(0, 1)]))
    assert [storage[:, :, block].unique().tolist() for block in range(4)] == [[0.0], [3.0], [1.0], [3.0]]
    runner.execute(Plan(step=3, swap_in=[(1, 0)]))
    assert storage[:, :, 0].unique().tolist() == [2.0]
    runner.close()
