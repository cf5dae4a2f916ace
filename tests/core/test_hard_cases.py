"""Kinds of bugs that serving engines had, as far as they are nobody else's test yet (the whole table is in
docs/hard-cases.md). Blocks hold 4 tokens."""

from typing import Any

import pytest
from simulation.core_modules import Core
from simulation.fake_runner import token_at
from support.scheduling import Rig, admitted, counts, preempted

# --- never fits, stuck -------------------------------------------------------------------------------------


def test_a_prompt_that_fills_the_pool_runs_and_one_token_more_is_refused(core: Core) -> None:
    rig = Rig(core, blocks=4, prefix_cache=True)
    with pytest.raises(core.NeverFits):
        rig.add("too long", prompt=16)
    fits = rig.add("fits", prompt=15, max_tokens=1)
    behind = rig.add("behind", prompt=1, max_tokens=1)
    rig.run(at_most=4)
    assert (fits.finish_reason, behind.finish_reason) == ("length", "length")


def test_the_preempted_take_no_slot(core: Core) -> None:
    """Two slots, two preempted: whoever comes back first takes a slot, not one left of them."""
    rig = Rig(core, blocks=6, max_running=2, host_blocks=6)
    for name in "abc":
        rig.add(name, max_tokens=16)
    rig.run(at_most=200)
    assert rig.scheduler.counters.preemptions > 0
    assert [rig.requests[name].output for name in "abc"] == [rig.expected(name, 16) for name in "abc"]


def test_a_request_above_the_mark_gets_in_once_the_batch_is_empty_and_nobody_passes_it_for_ever(
    core: Core,
) -> None:
    rig = Rig(core, blocks=8, admit_limit=4, max_passes=2)
    rig.add("runs", prompt=4, max_tokens=6)
    rig.step()
    large = rig.add("large", prompt=20, max_tokens=2)
    later: list[Any] = []
    for number in range(40):
        if large.state == "running":
            break
        later.append(rig.add(f"small {number}", prompt=1, max_tokens=2))
        rig.step()
    assert large.state == "running"
    assert large.passed == 0, "counted anew from its admission"
    assert sum(request.state == "finished" for request in later) == 2


def test_a_running_prefill_that_got_no_budget_goes_on_in_the_next_step(core: Core) -> None:
    rig = Rig(core, blocks=32, token_budget=8, max_running=8)
    first = rig.add("first", prompt=24, max_tokens=2)
    second = rig.add("second", prompt=6, max_tokens=2)
    assert counts(rig.step()) == {"first": 8}
    rig.scheduler.set_limits(token_budget=32)
    assert counts(rig.step()) == {"first": 16, "second": 6}
    rig.scheduler.set_limits(token_budget=8)
    third = rig.add("third", prompt=12, max_tokens=2)
    fourth = rig.add("fourth", prompt=12, max_tokens=2)
    rig.run(at_most=12)
    assert {each.finish_reason for each in (first, second, third, fourth)} == {"length"}


# --- order -------------------------------------------------------------------------------------------------


def test_those_that_were_looked_at_and_left_keep_their_order(core: Core) -> None:
    rig = Rig(core, blocks=8, max_passes=8)
    rig.add("runs", prompt=16, max_tokens=4)
    rig.step()
    for name, prompt in (("large", 20), ("larger", 24), ("small", 2), ("largest", 27)):
        rig.add(name, prompt=prompt, max_tokens=1)
    assert admitted(rig.step()) == ["small"]
    assert rig.waiting == ["large", "larger", "largest"]
    order: list[str] = []
    while rig.scheduler.has_work:
        order += admitted(rig.step())
    assert order == ["large", "larger", "largest"]


def test_a_changed_limit_for_long_prompts_leaves_the_turns_of_tenants_as_they_are(core: Core) -> None:
    """Who waits is queued anew by it: that is no return from an absence, which would cost the turn."""
    queue = core.WaitingQueue()
    queue.long_tokens = 16

    def push(tenant: str, prompt: int) -> Any:
        request = core.Request(
            id=f"{tenant} {prompt}", prompt=[0] * prompt, max_tokens=1, arrival_s=0.0, tenant=tenant
        )
        queue.push(request)
        return request

    kept_out = push("rare", 20)
    for prompt in (9, 10, 11):
        queue.admitted(push("busy", prompt), in_turn=True)
    assert kept_out.account.served == 0
    queue.long_tokens = 32
    assert kept_out.account.served == 0
    queue.long_tokens = 8
    assert kept_out.account.served == 0


# --- preemption --------------------------------------------------------------------------------------------


def test_two_that_can_not_both_grow_come_to_an_end_one_after_the_other(core: Core) -> None:
    """Neither preempts the other again and again: each time one of them gains."""
    rig = Rig(core, blocks=4, max_running=2)
    rig.add("a", prompt=4, max_tokens=12)
    rig.add("b", prompt=4, max_tokens=12)
    rig.run(at_most=60)
    assert rig.scheduler.counters.preemptions <= 2
    assert {request.finish_reason for request in rig.requests.values()} == {"length"}


def test_a_fork_and_its_original_preempted_together_lose_no_token(core: Core) -> None:
    rig = Rig(core, blocks=9, host_blocks=4, max_running=4, prefix_cache=True)
    parent = rig.add("parent", prompt=6, max_tokens=12)
    rig.step()
    for name in ("one", "two", "three"):
        child = core.Request(
            id=name,
            prompt=parent.prompt,
            max_tokens=12,
            arrival_s=rig.now_s,
            sampling=sum(map(ord, name)) * 7919,
        )
        rig.requests[name] = child
        rig.scheduler.fork("parent", child, rig.now_s)
    assert rig.scheduler.counters.forks == 3
    victims: set[str] = set()
    while rig.scheduler.has_work:
        victims.update(preempted(rig.step()))
    assert len(victims) >= 2
    for name, request in rig.requests.items():
        assert request.output == rig.expected(name, 12)


# --- prefix cache and swap ---------------------------------------------------------------------------------


def test_what_was_evicted_while_swapped_out_comes_from_the_host(core: Core) -> None:
    rig = Rig(core, blocks=8, host_blocks=8, prefix_cache=True)
    rig.add("a", max_tokens=24)
    b = rig.add("b", max_tokens=24)
    while not b.preemptions:
        rig.step()
    kept = b.host_tokens
    rig.scheduler.abort("a")
    # Others come and go, and reuse all of the pool.
    rig.pool.release(rig.pool.allocate(8))
    assert not rig.pool.index.find(b).blocks, "nothing of it is cached any more"
    plan = rig.plan()
    assert (len(plan.swap_in), b.cached_tokens, b.computed_tokens) == (-(-kept // 4), 0, kept)
    rig.commit(plan)
    rig.run()
    assert b.output == rig.expected("b", 24)


def test_what_a_stopped_request_left_in_the_cache_is_only_what_was_computed(core: Core) -> None:
    """A stop string is seen late: by then tokens behind it are computed and cached."""
    rig = Rig(core, prefix_cache=True)
    stopped = rig.add("stopped", prompt=6, max_tokens=20)
    for _ in range(7):
        rig.step()
    rig.scheduler.abort("stopped", "stop")
    whole = stopped.prompt + stopped.output
    again = rig.add("again", tokens=[*whole[:9], 1, 2, 3], max_tokens=4)
    rig.step()
    assert again.cached_tokens == 9, "up to where both part"
    rig.run()
    assert again.output == rig.expected("again", 4)


def test_a_full_hit_in_a_full_pool_still_has_room_for_its_next_token(core: Core) -> None:
    rig = Rig(core, blocks=4, prefix_cache=True)
    first = rig.add("first", prompt=12, max_tokens=2)
    rig.run()
    again = rig.add("again", tokens=first.prompt, max_tokens=4)
    plan = rig.step()
    assert counts(plan) == {"again": 1}
    rig.run()
    assert again.output == rig.expected("again", 4)


# --- double free -------------------------------------------------------------------------------------------


def test_a_table_with_a_block_twice_is_refused_and_changes_nothing(core: Core) -> None:
    pool = core.BlockPool(4, 4)
    table = pool.allocate(2)
    for give in (pool.release, pool.share):
        with pytest.raises(core.PoolError):
            give([table[0], table[0]])
    assert (pool.used, [pool.ref_counts[block] for block in table]) == (2, [1, 1])


# --- aborts and drains -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_sharer_cancelled_while_the_other_is_swapped_out_takes_nothing_with_it(
    core: Core, prefix_cache: bool
) -> None:
    rig = Rig(core, blocks=7, host_blocks=8, prefix_cache=prefix_cache)
    parent = rig.add("parent", prompt=8, max_tokens=16)
    rig.step()
    child = core.Request(
        id="child", prompt=parent.prompt, max_tokens=16, arrival_s=rig.now_s + 9, sampling=5 * 7919
    )
    rig.scheduler.fork("parent", child, rig.now_s)
    while not child.preemptions:
        rig.step()
    assert child.host_blocks
    rig.scheduler.abort("parent")
    rig.check()
    while child.state != "finished":
        rig.step()
    assert child.output == [token_at(child.sampling, position) for position in range(16)]
    assert (rig.pool.used, len(rig.host.free_list)) == (0, 8)


def test_a_drain_while_one_is_swapped_out_hands_it_back_whole_and_the_rest_ends_here(core: Core) -> None:
    rig = Rig(core, blocks=6, host_blocks=8)
    rig.add("a", max_tokens=20)
    b = rig.add("b", max_tokens=20)
    while not b.preemptions:
        rig.step()
    tokens = list(b.output)
    assert [request.id for request in rig.scheduler.close_admission()] == ["b"]
    assert (b.output, len(rig.host.free_list)) == (tokens, 8)
    rig.run()
    assert (rig.requests["a"].finish_reason, rig.pool.used) == ("length", 0)
    other = Rig(core)
    moved = other.add("b", tokens=b.prompt, max_tokens=20, output=list(tokens))
    other.run()
    assert moved.output == rig.expected("b", 20)
