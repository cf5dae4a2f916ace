"""Who is admitted, and the reason of everybody else. Blocks hold 4 tokens; a prompt of 4 needs 2 (one token
more)."""

import pytest
from infer_engine.core.admission import LOOK_AHEAD
from simulation.core_modules import Core
from support.scheduling import Rig, admitted, counts


def test_the_whole_prompt_and_one_token_must_fit_into_free_blocks(core: Core) -> None:
    rig = Rig(core, blocks=5)
    rig.add("a", prompt=4)
    rig.add("b", prompt=12)
    assert admitted(rig.step()) == ["a"]
    assert rig.reason("b") == ("kv", None)
    assert rig.pool.free == 3


def test_admission_takes_all_blocks_of_the_prompt_at_once_so_later_chunks_cannot_fail(core: Core) -> None:
    rig = Rig(core, blocks=8, token_budget=8)
    long = rig.add("long", prompt=20, max_tokens=2)
    rig.step()
    assert (len(long.block_table), long.computed_tokens) == (6, 8)
    rig.add("other", prompt=8)
    while "long" not in rig.ended:
        assert admitted(rig.step()) == []
    rig.run()
    assert rig.scheduler.counters.preemptions == 0


def test_kv_and_headroom_are_told_apart(core: Core) -> None:
    rig = Rig(core, blocks=10, admit_limit=6)
    rig.add("a", prompt=12)
    rig.step()
    rig.add("above-mark", prompt=8)
    rig.add("no-room", prompt=32)
    rig.step()
    assert rig.reason("above-mark") == ("headroom", None)
    assert rig.reason("no-room") == ("kv", None)
    assert rig.scheduler.admission.reason_counts() == {"headroom": 1, "kv": 1}


def test_the_mark_counts_what_is_in_use_and_what_is_needed(core: Core) -> None:
    rig = Rig(core, blocks=10, admit_limit=6)
    rig.add("a", prompt=12)
    rig.add("exactly-to-the-mark", prompt=4)
    assert admitted(rig.step()) == ["a", "exactly-to-the-mark"]


def test_an_empty_batch_is_exempt_from_the_mark_or_a_large_request_would_wait_for_ever(core: Core) -> None:
    rig = Rig(core, blocks=10, admit_limit=2, batch_limit=0)
    rig.add("large", prompt=30, max_tokens=2)
    rig.add("batch", prompt=30, max_tokens=2, tier="batch")
    assert admitted(rig.step()) == ["large"]
    rig.run()
    assert set(rig.ended) == {"large", "batch"}


def test_moving_headroom_down_admits_in_the_next_step(core: Core) -> None:
    rig = Rig(core, blocks=10, admit_limit=4)
    rig.add("a")
    rig.add("b", prompt=8)
    rig.step()
    assert rig.reason("b") == ("headroom", None)
    rig.scheduler.set_limits(admit_limit=8)
    assert admitted(rig.step()) == ["b"]


def test_batch_is_admitted_to_its_own_lower_mark(core: Core) -> None:
    rig = Rig(core, blocks=10, admit_limit=9, batch_limit=4)
    rig.add("a", prompt=4)
    rig.add("batch", prompt=8, tier="batch")
    rig.step()
    assert rig.reason("batch") == ("headroom", None)
    rig.add("interactive", prompt=8)
    assert admitted(rig.step()) == ["interactive"]


def test_a_full_batch_is_the_reason_slots(core: Core) -> None:
    rig = Rig(core, max_running=2)
    for name in "abcd":
        rig.add(name)
    rig.step()
    assert rig.running == ["a", "b"]
    assert [rig.reason(name) for name in "cd"] == [("slots", None)] * 2


def test_a_spent_budget_is_the_reason_token_budget(core: Core) -> None:
    rig = Rig(core, blocks=64, max_running=4, token_budget=16)
    rig.add("a", prompt=10)
    rig.add("b", prompt=10)
    rig.add("c", prompt=10)
    assert counts(rig.step()) == {"a": 10, "b": 6}
    assert rig.reason("c") == ("token_budget", None)


def test_smaller_requests_pass_a_blocked_head_so_often_and_then_wait_behind_it(core: Core) -> None:
    rig = Rig(core, blocks=12, max_passes=2)
    rig.add("a", prompt=20, max_tokens=30)
    rig.step()
    head = rig.add("head", prompt=28)
    for index in range(4):
        rig.add(f"small{index}", max_tokens=2)
    assert admitted(rig.step()) == ["small0", "small1"]
    assert rig.reason("head") == ("kv", None)
    assert rig.reason("small2") == rig.reason("small3") == ("behind", "head")
    assert head.passed == 2
    for _ in range(5):
        assert "small2" not in admitted(rig.step())


def test_a_head_is_admitted_in_bounded_time_under_a_flood_of_smaller_requests(core: Core) -> None:
    rig = Rig(core, blocks=12, max_passes=3)
    rig.add("first", max_tokens=2)
    rig.step()
    rig.add("head", prompt=40, max_tokens=2)
    # Three may pass, each runs three steps, and then the pool has emptied.
    for index in range(9):
        rig.add(f"small{index}", max_tokens=3)
        rig.step()
    assert "head" in {*rig.running, *rig.ended}


def test_no_passing_at_all_is_strict_order(core: Core) -> None:
    rig = Rig(core, blocks=8, max_passes=0)
    rig.add("a", prompt=12)
    rig.step()
    rig.add("head", prompt=16)
    rig.add("small")
    assert admitted(rig.step()) == []
    assert rig.reason("small") == ("behind", "head")


def test_passing_looks_at_a_bounded_number_of_requests(core: Core) -> None:
    rig = Rig(core, blocks=12, max_running=64, max_passes=100)
    rig.add("a", prompt=20)
    rig.step()
    rig.add("head", prompt=30)
    for index in range(LOOK_AHEAD):
        rig.add(f"large{index}", prompt=24)
    rig.add("small")
    rig.step()
    assert rig.reason("small") == ("behind", "head")
    rig.scheduler.abort("large0")
    assert admitted(rig.step()) == ["small"]


def test_batch_never_takes_blocks_for_which_interactive_waits(core: Core) -> None:
    rig = Rig(core, blocks=8)
    rig.add("a", prompt=12)
    rig.step()
    rig.add("interactive", prompt=16)
    rig.add("batch", tier="batch")
    assert admitted(rig.step()) == []
    assert rig.reason("batch") == ("tier", None)
    rig.scheduler.abort("interactive")
    assert admitted(rig.step()) == ["batch"]


def test_a_blocked_batch_head_does_not_hold_up_interactive(core: Core) -> None:
    rig = Rig(core, blocks=10, batch_limit=4)
    rig.add("a")
    rig.add("batch", prompt=12, tier="batch")
    rig.step()
    rig.add("interactive", prompt=12)
    assert admitted(rig.step()) == ["interactive"]
    assert rig.reason("batch") == ("headroom", None)


def test_interactive_is_admitted_before_batch_that_came_earlier(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.add("batch", tier="batch")
    rig.add("interactive")
    assert admitted(rig.step()) == ["interactive"]


def test_who_came_after_the_plan_waits_for_the_next_step(core: Core) -> None:
    rig = Rig(core)
    rig.add("a")
    plan = rig.plan()
    rig.add("late")
    assert rig.reason("late") == ("token_budget", None)
    rig.commit(plan)
    assert admitted(rig.step()) == ["late"]


def test_nobody_waits_behind_a_head_that_has_gone(core: Core) -> None:
    rig = Rig(core, blocks=8, max_passes=0)
    rig.add("a", prompt=12)
    rig.step()
    rig.add("head", prompt=16)
    rig.add("small")
    rig.step()
    rig.scheduler.abort("head")
    assert rig.reason("small") == ("token_budget", None)
    assert admitted(rig.step()) == ["small"]


@pytest.mark.parametrize("waiting", [100, 3000])
def test_the_counts_of_reasons_are_those_of_the_rows_however_many_wait(core: Core, waiting: int) -> None:
    rig = Rig(core, blocks=32, max_running=8, max_waiting=10_000)
    rig.add("a", prompt=60, max_tokens=50)
    for index in range(waiting):
        rig.add(f"q{index}", prompt=80 if index % 3 else 4, tier="batch" if index % 5 == 0 else "interactive")
    rig.step()
    tally: dict[str, int] = {}
    for request in rig.scheduler.waiting:
        reason, _ = rig.scheduler.admission.reason(request)
        tally[reason] = tally.get(reason, 0) + 1
    assert tally == rig.scheduler.admission.reason_counts()
    assert sum(tally.values()) == len(rig.scheduler.waiting)
