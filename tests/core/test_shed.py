"""Shed: batch leaves the batch at the next step, stays queued, and comes back when it is taken off."""

from infer_engine.core.blocks import BlockPool
from infer_engine.core.invariants import violations
from infer_engine.core.limits import Limits
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.protocol import Tier


def scheduler(*, age_steps: int = 2000) -> Scheduler:
    limits = Limits(admit_limit=64, batch_limit=64, max_running=8, token_budget=64, age_steps=age_steps)
    return Scheduler(BlockPool(64, 4), limits, 1024)


def request(name: str, tier: Tier, *, deadline_s: float | None = None) -> Request:
    return Request(id=name, prompt=[1] * 6, max_tokens=50, arrival_s=0.0, tier=tier, deadline_s=deadline_s)


def step(under: Scheduler, now_s: float = 0.0) -> list[str]:
    """One whole step; who is in the batch after it."""
    plan = under.step(now_s)
    under.commit({chunk.request.id: 7 for chunk in plan.chunks if chunk.samples}, now_s)
    return sorted(under.running)


def test_batch_is_preempted_by_the_next_step_and_interactive_goes_on() -> None:
    under = scheduler()
    for name, tier in (("b1", "batch"), ("i1", "interactive"), ("b2", "batch")):
        under.add(request(name, tier), 0.0)
    assert step(under) == ["b1", "b2", "i1"]
    under.set_shed(True)
    under.add(request("i2", "interactive"), 0.0)
    assert step(under) == ["i1", "i2"], "and who waits is let in by the same step"
    held = [each for name in under.running for each in under.running[name].block_table]
    assert under.pool.used == len(set(held))
    assert {name: _live(under, name).preemptions for name in ("b1", "b2")} == {"b1": 1, "b2": 1}
    assert [under.admission.reason(each)[0] for each in under.waiting] == ["tier", "tier"]
    tokens = {name: list(_live(under, name).output) for name in ("b1", "b2")}
    under.set_shed(False)
    assert step(under) == ["b1", "b2", "i1", "i2"]
    assert all(_live(under, name).output[:1] == tokens[name] for name in tokens), "what it had it keeps"


def test_who_waits_while_shed_is_no_violation() -> None:
    under = scheduler()
    under.add(request("b1", "batch"), 0.0)
    step(under)
    under.set_shed(True)
    step(under)
    assert not under.has_work
    assert violations(under) == []
    under.add(request("i1", "interactive"), 0.0)
    assert under.has_work
    assert violations(under) == []


def test_with_batch_alone_there_is_nothing_to_do() -> None:
    under = scheduler()
    under.add(request("b1", "batch", deadline_s=50.0), 0.0)
    assert step(under) == ["b1"]
    under.set_shed(True)
    assert under.has_work
    assert step(under) == []
    assert not under.has_work
    assert under.waiting.count("batch") == 1
    assert not under.is_overdue(49.0)
    assert under.is_overdue(50.0), "its deadline is kept all the same"
    plan = under.step(51.0)
    assert [(each.id, each.error) for each in plan.finished] == [("b1", "deadline_exceeded")]


def test_nobody_ages_out_of_it() -> None:
    under = scheduler(age_steps=1)
    under.add(request("b1", "batch"), 0.0)
    assert step(under) == ["b1"]
    under.add(request("i1", "interactive"), 0.0)
    under.set_shed(True)
    for _ in range(5):
        assert step(under) == ["i1"]
    assert under.counters.aged == 0


def test_who_has_aged_is_batch_again() -> None:
    under = scheduler(age_steps=1)
    under.set_limits(max_running=1)
    under.add(request("i1", "interactive"), 0.0)
    step(under)
    under.add(request("b1", "batch"), 0.0)
    for _ in range(4):
        step(under)
    assert _live(under, "b1").aged
    under.set_shed(True)
    assert not _live(under, "b1").aged
    assert (under.waiting.count("interactive"), under.waiting.count("batch")) == (0, 1)


def _live(under: Scheduler, name: str) -> Request:
    found = under.get(name)
    assert found is not None
    return found
