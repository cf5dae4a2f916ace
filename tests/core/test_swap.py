"""Preemption by swap to the host pool. Blocks hold 4 tokens."""

from typing import Any

import pytest
from simulation.core_modules import Core
from support.scheduling import Rig, counts


def squeezed(core: Core, **settings: Any) -> Rig:
    """Two sequences that outgrow six blocks; "b" will be preempted with 12 tokens computed."""
    rig = Rig(core, blocks=6, **{"host_blocks": 8, **settings})
    rig.add("a", max_tokens=20)
    rig.add("b", max_tokens=20)
    return rig


def until_preempted(rig: Rig) -> Any:
    for _ in range(100):
        plan = rig.plan()
        if plan.preempted:
            return plan
        rig.commit(plan)
    raise AssertionError("nobody was preempted")


def until_resumed(rig: Rig, name: str = "b") -> Any:
    for _ in range(100):
        plan = rig.step()
        if any(admission.id == name for admission in plan.admitted):
            return plan
    raise AssertionError(f"{name} did not come back")


def test_a_swapped_sequence_goes_on_where_it_was_and_computes_nothing_twice(core: Core) -> None:
    rig = squeezed(core)
    b = rig.requests["b"]
    plan = until_preempted(rig)
    table = [block for block, _ in plan.swap_out]
    (preemption,) = plan.preempted
    assert (preemption.mode, preemption.redo_tokens, preemption.freed_blocks) == ("swap", 0, 3)
    assert (len(table), b.host_tokens, len(rig.host.free_list)) == (3, 12, 5)
    rig.commit(plan)
    plan = until_resumed(rig)
    assert [block for _, block in plan.swap_in] == b.block_table[:3]
    assert counts(plan)["b"] == 1
    assert (b.host_blocks, len(rig.host.free_list)) == ([], 8)
    rig.run()
    for name in "ab":
        assert rig.requests[name].output == rig.expected(name, 20)
    counters = rig.scheduler.counters
    assert (counters.preemptions, counters.swaps, counters.redo_tokens) == (1, 1, 0)
    assert (counters.swapped_out_blocks, counters.swapped_in_blocks) == (3, 3)


def test_a_full_host_pool_means_recompute(core: Core) -> None:
    rig = squeezed(core, host_blocks=2)
    (preemption,) = until_preempted(rig).preempted
    assert (preemption.mode, preemption.redo_tokens) == ("recompute", 12)
    assert len(rig.host.free_list) == 2


def test_swap_is_not_done_where_recompute_is_forced(core: Core) -> None:
    rig = squeezed(core, preempt_mode="recompute")
    assert until_preempted(rig).preempted[0].mode == "recompute"


@pytest.mark.parametrize(("block_s", "mode"), [(3.9, "swap"), (4.1, "recompute")])
def test_the_cheaper_way_is_taken(core: Core, block_s: float, mode: str) -> None:
    """Three blocks to move against twelve tokens to compute at a second each."""
    rig = squeezed(core, preempt_mode="auto", cost=core.SwapCost(block_s=block_s, token_s=1.0))
    assert until_preempted(rig).preempted[0].mode == mode


def test_aborting_a_swapped_request_frees_its_host_blocks(core: Core) -> None:
    rig = squeezed(core)
    rig.commit(until_preempted(rig))
    finish = rig.scheduler.abort("b")
    assert finish.freed_blocks == 0
    assert len(rig.host.free_list) == 8
    rig.run()


def test_a_swapped_request_that_is_handed_back_leaves_nothing_on_the_host(core: Core) -> None:
    rig = squeezed(core)
    rig.commit(until_preempted(rig))
    (request,) = rig.scheduler.close_admission()
    assert (request.id, request.host_blocks, request.host_tokens) == ("b", [], 0)
    assert len(rig.host.free_list) == 8
    rig.scheduler.open_admission()
    rig.scheduler.add(request, rig.now_s)
    rig.run()
    assert request.output == rig.expected("b", 20)


def test_what_the_prefix_cache_still_has_is_not_moved_in(core: Core) -> None:
    rig = squeezed(core, prefix_cache=True)
    rig.commit(until_preempted(rig))
    rig.scheduler.abort("a")
    b = rig.requests["b"]
    plan = until_resumed(rig)
    # Two of three blocks are cached still, the tail was reused.
    assert [block for _, block in plan.swap_in] == b.block_table[2:3]
    assert (b.cached_tokens, b.computed_tokens - 1) == (8, 12)
    rig.run()
    assert b.output == rig.expected("b", 20)
    assert len(rig.host.free_list) == 8


def test_what_was_moved_in_can_be_found_again(core: Core) -> None:
    rig = squeezed(core, prefix_cache=True)
    rig.commit(until_preempted(rig))
    rig.scheduler.abort("a")
    rig.pool.release(rig.pool.allocate(6))
    plan = rig.scheduler.step(rig.now_s)
    assert len(plan.swap_in) == 3
    rig.scheduler.commit(rig.runner.execute(plan), rig.now_s)
    assert set(rig.requests["b"].block_table[:3]) <= rig.pool.index.contents.keys()


def test_many_swaps_lose_no_token(core: Core) -> None:
    rig = Rig(core, blocks=10, host_blocks=10, max_running=8, prefix_cache=True)
    for index in range(8):
        rig.add(f"r{index}", prompt=5, max_tokens=16)
    rig.run(at_most=400)
    assert rig.scheduler.counters.swaps > 3
    for name, request in rig.requests.items():
        assert request.output == rig.expected(name, 16)
    assert len(rig.host.free_list) == 10


def test_a_host_pool_of_less_than_nothing_is_refused(core: Core) -> None:
    with pytest.raises(ValueError, match="-1 blocks"):
        core.HostPool(-1)
