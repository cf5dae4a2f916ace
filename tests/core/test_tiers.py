"""Interactive before batch, and batch not for ever after. Blocks hold 4 tokens."""

from typing import Any

import pytest
from simulation.core_modules import Core
from support.scheduling import Rig, admitted, preempted


def with_batch(core: Core, **settings: Any) -> Rig:
    """Two batch sequences that fill 6 of 8 blocks."""
    rig = Rig(core, **{"blocks": 8, **settings})
    rig.add("batch1", prompt=8, max_tokens=12, tier="batch")
    rig.add("batch2", prompt=8, max_tokens=12, tier="batch")
    rig.step()
    return rig


def test_batch_leaves_in_the_step_in_which_interactive_needs_the_room_and_comes_back(core: Core) -> None:
    rig = with_batch(core)
    rig.add("i", prompt=12, max_tokens=4)
    plan = rig.step()
    # One is enough, and it is the later one; who needed the room joins in the same step.
    assert (preempted(plan), admitted(plan)) == (["batch2"], ["i"])
    assert rig.reason("batch2") == ("tier", None)
    rig.run()
    for name, count in (("i", 4), ("batch1", 12), ("batch2", 12)):
        assert rig.requests[name].output == rig.expected(name, count)
    assert rig.scheduler.counters.yields >= 1


def test_batch_stays_where_leaving_would_not_help(core: Core) -> None:
    rig = with_batch(core)
    rig.add("holds", prompt=3, max_tokens=4)
    assert preempted(rig.step()) == []
    rig.add("large", prompt=28, max_tokens=2)
    assert preempted(rig.step()) == []
    rig.run()
    assert rig.requests["large"].output == rig.expected("large", 2)


def test_batch_makes_room_below_the_mark_too(core: Core) -> None:
    rig = with_batch(core, blocks=16, admit_limit=8)
    rig.add("i", prompt=12, max_tokens=4)
    plan = rig.step()
    assert (preempted(plan), admitted(plan)) == (["batch2"], ["i"])


def test_batch_gives_up_its_slot(core: Core) -> None:
    rig = with_batch(core, blocks=16, max_running=2)
    rig.add("i", prompt=2, max_tokens=4)
    plan = rig.step()
    assert (preempted(plan), admitted(plan)) == (["batch2"], ["i"])


def test_what_leaves_is_swapped_where_that_is_forced(core: Core) -> None:
    rig = with_batch(core, host_blocks=8)
    rig.add("i", prompt=12, max_tokens=4)
    (preemption,) = rig.step().preempted
    assert preemption.mode == "swap"
    rig.run()
    assert rig.requests["batch2"].output == rig.expected("batch2", 12)


def test_interactive_never_leaves_for_interactive_that_waits(core: Core) -> None:
    rig = Rig(core, blocks=8)
    rig.add("a", prompt=12, max_tokens=4)
    rig.step()
    rig.add("urgent", prompt=20, max_tokens=4, priority=9)
    assert preempted(rig.step()) == []


@pytest.mark.parametrize("age_steps", [1, 20])
def test_a_batch_request_waits_no_longer_than_its_age(core: Core, age_steps: int) -> None:
    """Interactive requests never stop coming, and the batch has one slot."""
    rig = Rig(core, max_running=1)
    rig.scheduler.set_limits(age_steps=age_steps)
    rig.add("first", max_tokens=2)
    waits = rig.add("waits", max_tokens=6, tier="batch")
    steps = 0
    while waits.state == "waiting":
        if len(rig.waiting) < 3:
            rig.add(f"i{steps}", max_tokens=2)
        rig.step()
        steps += 1
        assert steps <= age_steps + 4
    assert waits.aged
    # What has aged is not preempted for those that still wait, either.
    while "waits" not in rig.ended:
        rig.step()
    assert waits.preemptions == 0
    assert steps > age_steps
    assert rig.scheduler.counters.aged == 1


def test_the_oldest_ages_first_whether_it_ran_before_or_not(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.scheduler.set_limits(age_steps=10)
    rig.add("old", tier="batch", arrival_s=1.0)
    rig.add("older", tier="batch", arrival_s=0.5)
    for number in range(16):
        rig.add(f"i{number}", max_tokens=1)
        rig.step()
        if rig.scheduler.counters.aged:
            break
    (aged,) = [name for name in ("old", "older") if rig.requests[name].aged]
    assert aged == "old", "the first that came here, whenever it arrived elsewhere"


def test_within_a_tier_the_higher_priority_is_admitted_first(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.add("runs", max_tokens=2)
    rig.step()
    for name, priority in (("low", -1), ("a", 0), ("b", 0), ("high", 3), ("batch", 9)):
        rig.add(name, max_tokens=1, priority=priority, tier="batch" if name == "batch" else "interactive")
    assert rig.waiting == ["high", "a", "b", "low", "batch"]
    order: list[str] = []
    while rig.scheduler.has_work:
        order += admitted(rig.step())
    assert order == ["high", "a", "b", "low", "batch"]


def test_blocks_that_batch_shares_with_others_are_not_room(core: Core) -> None:
    rig = Rig(core, blocks=8, prefix_cache=True)
    system = list(range(100, 116))
    rig.add("i", tokens=[*system, 1], max_tokens=3)
    rig.step()
    rig.add("batch", tokens=[*system, 2], max_tokens=3, tier="batch")
    rig.step()
    assert rig.pool.used == 6
    rig.add("waits", prompt=15, max_tokens=1)
    # It needs four blocks of its own; without the batch request there would be three.
    assert preempted(rig.step()) == []
    rig.run()


def test_who_fills_the_pool_is_not_preempted_since_it_could_not_come_back(core: Core) -> None:
    rig = Rig(core, blocks=4)
    batch = rig.add("batch", prompt=13, max_tokens=9, tier="batch")
    for _ in range(3):
        rig.step()
    assert batch.total_tokens == 16
    rig.add("i", max_tokens=2)
    assert preempted(rig.step()) == []
    rig.run()
    assert rig.ended["batch"].error == "kv_exhausted"
    assert rig.requests["i"].output == rig.expected("i", 2)
