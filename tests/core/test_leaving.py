"""Requests that are taken off a scheduler: released to go on elsewhere, or preempted in the next step."""

import pytest
from infer_engine.core.invariants import violations
from infer_engine.core.refusal import QueueFull
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from support.replicas import make_scheduler, runner_info


def request(name: str, output: list[int] | None = None) -> Request:
    return Request(
        id=name, prompt=[1, 2, 3, 4, 5], max_tokens=20, arrival_s=0.0, output=output or [], sampling=None
    )


def step(scheduler: Scheduler) -> list[str]:
    """Who computed."""
    plan = scheduler.step(0.0)
    scheduler.commit({chunk.request.id: 9 for chunk in plan.chunks if chunk.samples}, 0.0)
    assert violations(scheduler) == []
    return [chunk.request.id for chunk in plan.chunks]


def test_a_released_request_is_gone_with_its_blocks_and_has_not_ended() -> None:
    scheduler = make_scheduler(runner_info(), host_blocks=8)
    one, two = request("one"), request("two")
    scheduler.add(one, 0.0)
    step(scheduler)
    scheduler.add(two, 0.0)
    assert scheduler.release("one") == 2
    assert scheduler.release("one") is None
    assert scheduler.release("two") == 0, "it waited"
    assert (scheduler.has_work, scheduler.pool.used) == (False, 0)
    counters = scheduler.counters
    assert (one.finish_reason, counters.finished.total(), counters.released) == (None, 0, 2)
    assert step(scheduler) == []


def test_a_released_request_that_was_swapped_out_gives_the_host_blocks_back() -> None:
    scheduler = make_scheduler(runner_info(), host_blocks=8)
    scheduler.add(request("one"), 0.0)
    step(scheduler)
    assert scheduler.preempt("one")
    assert step(scheduler) == []
    assert scheduler.host.used == 2
    assert scheduler.release("one") == 0
    assert scheduler.host.used == 0


def test_who_is_preempted_when_asked_goes_to_the_head_and_comes_back() -> None:
    scheduler = make_scheduler(runner_info(), max_running=1)
    one = request("one")
    scheduler.add(one, 0.0)
    step(scheduler)
    scheduler.add(request("two"), 0.0)
    assert not scheduler.preempt("two"), "it waits"
    assert not scheduler.preempt("none")
    assert scheduler.preempt("one")
    plan = scheduler.step(0.0)
    assert [(each.id, each.mode, each.asked) for each in plan.preempted] == [("one", "recompute", True)]
    assert plan.chunks == []
    scheduler.commit({}, 0.0)
    assert one.output == [9]
    assert step(scheduler) == ["one"]


def test_a_sequence_that_continues_is_never_refused_for_a_full_queue() -> None:
    scheduler = make_scheduler(runner_info(), max_waiting=1)
    scheduler.add(request("one"), 0.0)
    with pytest.raises(QueueFull):
        scheduler.add(request("two"), 0.0)
    scheduler.add(request("three", output=[7, 8]), 0.0)
    assert step(scheduler)[0] == "three"
