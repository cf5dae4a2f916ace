"""Admission order."""

from typing import Any

import pytest
from infer_engine.core.queues import WaitingQueue
from infer_engine.core.request import Request


def request(name: str, arrival_s: float = 0.0, **fields: Any) -> Request:
    return Request(id=name, prompt=[1], max_tokens=4, arrival_s=arrival_s, **fields)


def order(queue: WaitingQueue) -> list[str]:
    return [waiting.id for waiting in queue]


def test_arrival_order_and_interactive_before_batch() -> None:
    queue = WaitingQueue()
    queue.push(request("b1", 1, tier="batch"))
    queue.push(request("i1", 2))
    queue.push(request("b2", 3, tier="batch"))
    queue.push(request("i2", 4))
    assert order(queue) == ["i1", "i2", "b1", "b2"]
    assert (len(queue), queue.count("interactive"), queue.count("batch")) == (4, 2, 2)


def test_who_waited_elsewhere_is_sorted_in_by_arrival() -> None:
    queue = WaitingQueue()
    for name, arrival_s in (("a", 10), ("b", 20), ("c", 30)):
        queue.push(request(name, arrival_s))
    queue.push(request("moved", 15))
    queue.push(request("same", 20))
    assert order(queue) == ["a", "moved", "b", "same", "c"]


def test_the_preempted_stand_in_front_and_the_most_important_of_them_first() -> None:
    queue = WaitingQueue()
    queue.push(request("fresh", 1))
    queue.push(request("batch", 1, tier="batch"))
    queue.push_first(request("least", 9))
    queue.push_first(request("less", 5))
    queue.push_first(request("batch-victim", 9, tier="batch"))
    assert order(queue) == ["less", "least", "fresh", "batch-victim", "batch"]


def test_who_brings_tokens_from_another_replica_stands_behind_the_preempted_and_before_the_fresh() -> None:
    queue = WaitingQueue()
    queue.push(request("fresh", 1))
    queue.push(request("moved", 9, output=[7]))
    queue.push_first(request("victim", 5))
    assert order(queue) == ["victim", "moved", "fresh"]


def test_removal_anywhere_keeps_the_order_of_the_rest() -> None:
    queue = WaitingQueue()
    waiting = [request(name, index) for index, name in enumerate("abcde")]
    for item in waiting:
        queue.push(item)
    for index in (2, 0, 4):
        queue.remove(waiting[index])
        assert waiting[index] not in queue
    assert order(queue) == ["b", "d"]
    with pytest.raises(KeyError):
        queue.remove(waiting[2])


def test_a_request_of_the_same_id_is_not_the_one_that_waits() -> None:
    queue = WaitingQueue()
    queue.push(request("a"))
    assert request("a") not in queue
