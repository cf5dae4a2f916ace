"""Nobody writes to a block that others hold or find. Blocks hold 4 tokens."""

from typing import Any

import pytest
from simulation.core_modules import Core
from support.scheduling import Rig, counts, preempted

PROMPT = [500 + position for position in range(10)]


def rig_with(core: Core, **settings: Any) -> Rig:
    return Rig(core, prefix_cache=True, **settings)


def fork(rig: Rig, parent: str, name: str, **fields: Any) -> Any:
    """A fork of ``parent`` that begins with its prompt."""
    rig.now_s += 1
    child = rig.core.Request(
        id=name,
        prompt=fields.pop("prompt", None) or list(rig.requests[parent].prompt),
        max_tokens=8,
        arrival_s=rig.now_s,
        sampling=sum(map(ord, name)) * 7919,
        **fields,
    )
    rig.scheduler.fork(parent, child, rig.now_s)
    rig.requests[name] = child
    rig.check()
    return child


# --- a part of a block -----------------------------------------------------------------------------------


def test_a_block_that_begins_alike_is_copied_and_its_part_is_not_computed(core: Core) -> None:
    rig = rig_with(core)
    first = rig.add("first", tokens=[*PROMPT, 1, 2, 3], max_tokens=1)
    rig.run()
    second = rig.add("second", tokens=[*PROMPT, 8, 9], max_tokens=2)
    plan = rig.step()
    assert second.cached_tokens == 10
    assert second.block_table[:2] == first.block_table[:2]
    assert plan.copies == [(first.block_table[2], second.block_table[2])]
    assert counts(plan) == {"second": 2}
    rig.run()
    assert second.output == rig.expected("second", 2)


def test_the_longest_of_several_parts_is_taken(core: Core) -> None:
    rig = rig_with(core)
    for number, tail in enumerate([[1, 2, 3, 4, 5], [1, 2, 7, 8, 9], [1, 6, 6, 6, 6]]):
        rig.add(f"r{number}", tokens=[*PROMPT[:4], *tail], max_tokens=1)
        rig.run()
    last = rig.add("last", tokens=[*PROMPT[:4], 1, 2, 7, 0, 0], max_tokens=1)
    rig.step()
    assert last.cached_tokens == 7


def test_the_newest_token_is_never_part_of_a_hit(core: Core) -> None:
    rig = rig_with(core)
    rig.add("first", tokens=PROMPT[:9], max_tokens=1)
    rig.run()
    again = rig.add("again", tokens=PROMPT[:6], max_tokens=1)
    rig.step()
    assert again.cached_tokens == 5


def test_a_block_evicted_in_the_very_step_is_still_copied_from(core: Core) -> None:
    rig = rig_with(core, blocks=3)
    rig.add("first", tokens=PROMPT[:9], max_tokens=1)
    rig.run()
    assert (rig.pool.free, rig.pool.cached) == (1, 2)
    # Needs all three blocks: the part's source is reused for its copy or for what comes behind it.
    other = rig.add("other", tokens=[*PROMPT[:6], 0, 0, 0], max_tokens=2)
    plan = rig.step()
    assert (other.cached_tokens, len(plan.evicted), len(plan.copies)) == (6, 1, 1)
    rig.run()
    assert other.output == rig.expected("other", 2)


# --- forks -----------------------------------------------------------------------------------------------


def test_a_fork_shares_all_blocks_and_the_first_to_write_copies(core: Core) -> None:
    rig = rig_with(core)
    parent = rig.add("parent", tokens=PROMPT)
    rig.step()
    child = fork(rig, "parent", "child")
    assert child.state == "running"
    assert child.block_table == parent.block_table
    before = list(parent.block_table)
    plan = rig.step()
    assert [forked.id for forked in plan.forked] == ["child"]
    assert plan.copies == [(before[2], parent.block_table[2])]
    assert (child.block_table, parent.block_table[:2]) == (before, before[:2])
    assert counts(plan) == {"parent": 1, "child": 1}
    rig.run()
    for name in ("parent", "child"):
        assert rig.requests[name].output == rig.expected(name, 8)
    assert rig.scheduler.counters.copied_blocks == 1


def test_a_fork_whose_parent_ended_copies_what_can_be_found_of_it(core: Core) -> None:
    rig = rig_with(core)
    rig.add("parent", tokens=PROMPT[:8])
    rig.step()
    child = fork(rig, "parent", "child")
    shared = child.block_table[1]
    rig.scheduler.abort("parent")
    assert rig.pool.ref_counts[shared] == 1
    plan = rig.step()
    assert plan.copies == [(shared, child.block_table[1])]
    rig.run()
    assert child.output == rig.expected("child", 8)


def test_a_fork_that_is_alone_again_writes_where_it_is(core: Core) -> None:
    rig = Rig(core)
    rig.add("parent", tokens=PROMPT)
    rig.step()
    child = fork(rig, "parent", "child")
    rig.scheduler.abort("parent")
    plan = rig.step()
    assert plan.copies == []
    rig.run()
    assert child.output == rig.expected("child", 8)


def test_many_forks_leave_the_original_to_the_last(core: Core) -> None:
    rig = Rig(core, blocks=24)
    rig.add("parent", tokens=PROMPT)
    rig.step()
    for number in range(4):
        assert fork(rig, "parent", f"child{number}").state == "running"
    assert rig.pool.used == 3
    plan = rig.step()
    assert len(plan.copies) == 4
    rig.run()
    for name, request in rig.requests.items():
        assert request.output == rig.expected(name, 8)


@pytest.mark.parametrize("why", ["slots", "mark", "queue", "salt", "other tokens", "no parent"])
def test_where_there_is_no_place_a_fork_waits_like_any_other(core: Core, why: str) -> None:
    rig = Rig(core, max_running=1 if why == "slots" else 8)
    rig.add("parent", tokens=PROMPT)
    rig.step()
    if why == "mark":
        rig.scheduler.set_limits(admit_limit=2)
    if why == "queue":
        rig.add("first-in-line")
    parent = "nobody" if why == "no parent" else "parent"
    rig.requests.setdefault("nobody", rig.requests["parent"])
    prompt = [*PROMPT[:3], 0, *PROMPT[4:]] if why == "other tokens" else None
    child = fork(rig, parent, "child", cache_salt="other" if why == "salt" else "", prompt=prompt)
    assert (child.state, child.block_table) == ("waiting", [])
    rig.scheduler.set_limits(admit_limit=16)
    rig.run()
    assert child.output == rig.expected("child", 8)


def test_a_refused_fork_leaves_nothing(core: Core) -> None:
    rig = Rig(core)
    rig.add("parent", tokens=PROMPT)
    rig.step()
    with pytest.raises(core.DuplicateId):
        fork(rig, "parent", "parent")
    rig.scheduler.close_admission()
    with pytest.raises(core.AdmissionClosed):
        fork(rig, "parent", "child")
    rig.check()


def test_cancelling_a_fork_leaves_its_parent_alone(core: Core) -> None:
    rig = Rig(core)
    parent = rig.add("parent", tokens=PROMPT)
    rig.step()
    fork(rig, "parent", "child")
    finish = rig.scheduler.abort("child")
    assert finish.freed_blocks == 0
    rig.run()
    assert parent.output == rig.expected("parent", 8)
    assert rig.scheduler.counters.copied_blocks == 0


@pytest.mark.parametrize("host_blocks", [0, 8])
def test_a_victims_copy_leaves_the_plan_with_it(core: Core, host_blocks: int) -> None:
    rig = Rig(core, blocks=5, host_blocks=host_blocks, token_budget=9)
    rig.add("parent", tokens=PROMPT, tier="batch")
    rig.step()
    rig.add("grows", prompt=3)
    rig.step()
    rig.step()
    child = fork(rig, "parent", "child")
    assert child.block_table == rig.requests["parent"].block_table
    plan = rig.plan()
    # The parent had taken the last block for its copy when "grows" needed it.
    assert preempted(plan) == ["parent"]
    assert plan.copies == []
    # What would have been copied is not in its block yet: it cannot be swapped out.
    assert plan.swap_out == []
    rig.commit(plan)
    rig.run()
    for name in ("parent", "child", "grows"):
        assert rig.requests[name].output == rig.expected(name, 8)


def test_a_fork_that_is_preempted_loses_no_token(core: Core) -> None:
    rig = Rig(core, blocks=6)
    rig.add("parent", tokens=PROMPT)
    rig.step()
    child = fork(rig, "parent", "child")
    rig.run()
    assert child.preemptions > 0
    for name in ("parent", "child"):
        assert rig.requests[name].output == rig.expected(name, 8)
