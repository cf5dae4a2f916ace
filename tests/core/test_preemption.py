"""When the batch outgrows the pool. Blocks hold 4 tokens."""

from typing import Any

from simulation.core_modules import Core
from support.scheduling import Rig, admitted, counts, preempted


def plan_that_preempts(rig: Rig) -> Any:
    """Step until a plan preempts; that plan, not yet committed."""
    for _ in range(100):
        plan = rig.plan()
        if plan.preempted:
            return plan
        rig.commit(plan)
    raise AssertionError("nobody was preempted")


def until_preempted(rig: Rig) -> list[str]:
    plan = plan_that_preempts(rig)
    rig.commit(plan)
    return preempted(plan)


def test_the_latest_to_arrive_goes_first(core: Core) -> None:
    rig = Rig(core, blocks=6)
    for name in "abc":
        rig.add(name, max_tokens=20)
    assert until_preempted(rig) == ["c"]


def test_batch_goes_before_interactive_however_early_it_came(core: Core) -> None:
    rig = Rig(core, blocks=6)
    rig.add("batch", max_tokens=20, tier="batch", priority=9)
    rig.step()
    rig.add("a", max_tokens=20)
    rig.add("b", max_tokens=20)
    assert until_preempted(rig) == ["batch"]


def test_within_a_tier_the_lowest_priority_goes_before_the_latest(core: Core) -> None:
    rig = Rig(core, blocks=6)
    rig.add("test-traffic", max_tokens=20, priority=-1)
    rig.add("a", max_tokens=20)
    rig.add("urgent", max_tokens=20, priority=5)
    assert until_preempted(rig) == ["test-traffic"]


def test_of_two_that_came_at_the_same_moment_the_later_in_the_batch_goes(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("a", max_tokens=20, arrival_s=1.0)
    rig.add("b", max_tokens=20, arrival_s=1.0)
    assert until_preempted(rig) == ["b"]


def test_arrival_counts_and_not_the_place_in_the_batch(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("came-later", max_tokens=20, arrival_s=50.0)
    rig.step()
    rig.add("waited-elsewhere", max_tokens=20, arrival_s=10.0)
    assert until_preempted(rig) == ["came-later"]


def test_who_preempts_itself_stops_and_the_others_go_on(core: Core) -> None:
    rig = Rig(core, blocks=5)
    rig.add("a", prompt=8, max_tokens=20)
    rig.add("b", prompt=7, max_tokens=20)
    for _ in range(2):
        assert preempted(rig.step()) == []
    plan = rig.step()
    assert preempted(plan) == ["b"]
    assert counts(plan) == {"a": 1}
    assert plan.preempted[0].freed_blocks == 2


def test_the_preempted_lose_their_kv_but_no_token(core: Core) -> None:
    rig = Rig(core, blocks=6)
    for name in "abc":
        rig.add(name, max_tokens=16)
    rig.run()
    assert rig.scheduler.counters.preemptions > 0
    for name in "abc":
        assert rig.requests[name].output == rig.expected(name, 16)
        assert rig.ended[name].reason == "length"
    assert rig.pool.free == 6


def test_a_preempted_request_computes_prompt_and_output_again_and_samples_the_next_token(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("a", max_tokens=9)
    victim = rig.add("b", max_tokens=16)
    until_preempted(rig)
    done = victim.total_tokens
    while "b" not in (admitted(plan := rig.step())):
        pass
    assert plan.admitted[0].resumed
    assert counts(plan)["b"] == done
    assert plan.chunks[-1].samples
    assert victim.total_tokens == done + 1


def test_a_step_that_preempted_admits_nobody_and_says_kv(core: Core) -> None:
    rig = Rig(core, blocks=7, max_running=3)
    rig.add("a", prompt=4, max_tokens=20)
    rig.add("b", prompt=16, max_tokens=20)
    rig.step()
    rig.add("small", prompt=2, max_tokens=2, tier="batch")
    assert admitted(plan_that_preempts(rig)) == []
    assert {rig.reason(name)[0] for name in rig.waiting} == {"kv"}


def test_the_preempted_stand_before_the_queue_and_come_back_first(core: Core) -> None:
    rig = Rig(core, blocks=6, max_running=3, max_passes=0)
    for name in "abc":
        rig.add(name, max_tokens=10)
    rig.step()
    rig.add("d", max_tokens=4)
    until_preempted(rig)
    assert rig.waiting == ["c", "d"]
    order: list[str] = []
    while "d" not in order:
        order += admitted(rig.step())
    assert "c" in order


def test_a_victim_already_planned_leaves_the_plan_and_its_token_goes_to_a_prefill(
    core: Core,
) -> None:
    rig = Rig(core, blocks=17, max_running=4, token_budget=20)
    rig.add("victim", prompt=24, max_tokens=9, tier="batch")
    rig.step()
    rig.add("grows", prompt=3, max_tokens=30)
    rig.add("long", prompt=32, max_tokens=4)
    rig.scheduler.set_limits(token_budget=8)
    assert counts(rig.step()) == {"victim": 4, "grows": 3, "long": 1}
    assert counts(rig.step()) == {"victim": 1, "grows": 1, "long": 6}
    # The pool is full and "grows" needs its second block, after "victim" was given its token.
    plan = rig.step()
    assert preempted(plan) == ["victim"]
    assert counts(plan) == {"grows": 1, "long": 7}


def test_a_victim_not_yet_planned_gives_back_the_token_set_aside_for_it(core: Core) -> None:
    rig = Rig(core, blocks=17, max_running=4, token_budget=20)
    rig.add("grows", prompt=3, max_tokens=30)
    rig.add("victim", prompt=24, max_tokens=9, tier="batch")
    rig.step()
    rig.add("long", prompt=32, max_tokens=4)
    rig.scheduler.set_limits(token_budget=9)
    assert counts(rig.step()) == {"grows": 1, "victim": 7, "long": 1}
    plan = rig.step()
    assert preempted(plan) == ["victim"]
    assert counts(plan) == {"grows": 1, "long": 8}


def test_admission_and_preemption_do_not_chase_each_other(core: Core) -> None:
    rig = Rig(core, blocks=8, max_running=8)
    for index in range(8):
        rig.add(f"r{index}", prompt=8, max_tokens=16)
    steps = rig.run(at_most=400)
    # Each needs 6 of 8 blocks in the end, so they run one after the other at worst; recompute costs little
    # more.
    assert steps <= 8 * 16 * 2
    assert all(finish.reason == "length" for finish in rig.ended.values())


def test_the_most_important_request_is_never_preempted(core: Core) -> None:
    rig = Rig(core, blocks=8, max_running=8)
    first = rig.add("first", prompt=8, max_tokens=20)
    for index in range(6):
        rig.add(f"r{index}", prompt=4, max_tokens=12)
    rig.run()
    assert first.preemptions == 0
    assert rig.scheduler.counters.preemptions > 0


def test_preemption_reports_what_it_freed_and_what_must_be_done_again(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("a", max_tokens=20)
    victim = rig.add("b", max_tokens=20)
    rig.step()
    (preemption,) = plan_that_preempts(rig).preempted
    assert (preemption.id, preemption.mode) == ("b", "recompute")
    # Two blocks are full; the newest token has no KV yet.
    assert (preemption.freed_blocks, preemption.redo_tokens, victim.total_tokens) == (2, 8, 9)
    assert (victim.preemptions, victim.state, victim.computed_tokens) == (1, "waiting", 0)
