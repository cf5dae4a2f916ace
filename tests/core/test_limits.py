"""Limits are validated whole and applied whole."""

from typing import cast

import pytest
from infer_engine.core.limits import LIMIT_NAMES, MOST, LimitChanges, Limits, LimitsError
from support.scheduling import Rig, counts


def test_every_wrong_value_is_named_with_what_is_allowed() -> None:
    limits = Limits(
        admit_limit=17, batch_limit=-1, max_running=0, token_budget=0, max_waiting=-1, max_passes=-1
    )
    with pytest.raises(LimitsError) as refused:
        limits.checked(16)
    text = str(refused.value)
    for name in (
        "admit_limit: 17",
        "batch_limit: -1",
        "max_running: 0",
        "token_budget: 0",
        "max_waiting: -1",
    ):
        assert name in text
    assert "0 to 16 allowed" in text
    assert len(refused.value.problems) == 6


@pytest.mark.parametrize("name", sorted(set(LIMIT_NAMES) - {"admit_limit", "batch_limit"}))
def test_a_number_that_no_message_could_carry_is_refused(name: str) -> None:
    rig = Rig(blocks=16)
    before = rig.scheduler.limits
    with pytest.raises(LimitsError, match=f"{name}: {10**30} given, . to {MOST} allowed|token_budget: "):
        rig.scheduler.set_limits(**cast("LimitChanges", {name: 10**30}))
    assert rig.scheduler.limits is before


def test_ratios_round_down_to_blocks() -> None:
    limits = Limits.from_ratios(
        1000, admit_ratio=0.9, batch_ratio=0.65, max_running=4, token_budget=64, max_waiting=10, max_passes=8
    )
    assert (limits.admit_limit, limits.batch_limit) == (900, 650)


def test_batch_never_reaches_further_than_interactive() -> None:
    limits = Limits(admit_limit=50, batch_limit=65)
    assert (limits.mark("interactive"), limits.mark("batch")) == (50, 50)


def test_a_budget_below_the_batch_size_is_refused_because_decodes_would_starve() -> None:
    with pytest.raises(LimitsError, match="token_budget: 7 given, at least 8 allowed"):
        Limits(admit_limit=16, batch_limit=16, max_running=8, token_budget=7).checked(16)


def test_a_refused_change_changes_nothing_even_where_one_value_was_good() -> None:
    rig = Rig(blocks=16)
    before = rig.scheduler.limits
    with pytest.raises(LimitsError):
        rig.scheduler.set_limits(admit_limit=8, batch_limit=99)
    assert rig.scheduler.limits is before


def test_a_change_returns_the_limits_before_and_after() -> None:
    rig = Rig(blocks=16, admit_limit=16)
    old, new = rig.scheduler.set_limits(admit_limit=8, max_running=2)
    assert (old.admit_limit, old.max_running) == (16, 8)
    assert (new.admit_limit, new.max_running) == (8, 2)
    assert new.token_budget == old.token_budget


def test_lowering_the_marks_never_evicts() -> None:
    rig = Rig(blocks=16, max_running=4)
    for name in "abcd":
        rig.add(name, max_tokens=3)
    rig.step()
    rig.scheduler.set_limits(admit_limit=0, batch_limit=0, max_running=1)
    plan = rig.step()
    assert rig.running == ["a", "b", "c", "d"]
    assert plan.preempted == []


def test_the_budget_cannot_be_lowered_below_those_who_run_now() -> None:
    rig = Rig(max_running=4, token_budget=16)
    for name in "abcd":
        rig.add(name)
    rig.step()
    with pytest.raises(LimitsError, match="4 running now"):
        rig.scheduler.set_limits(max_running=1, token_budget=3)


def test_a_new_budget_counts_from_the_next_step() -> None:
    rig = Rig(blocks=64, token_budget=64)
    rig.add("long", prompt=100)
    assert counts(rig.step()) == {"long": 64}
    rig.scheduler.set_limits(token_budget=10)
    assert counts(rig.step()) == {"long": 10}
