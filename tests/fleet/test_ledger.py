"""The ledger: where requests are, how they end, what is remembered of them."""

from collections.abc import Callable
from typing import get_args

import pytest
from infer_engine.fleet.endings import ending
from infer_engine.fleet.feed import Feed
from infer_engine.fleet.generation import Generation
from infer_engine.fleet.ledger import MOST_TOMBSTONES, Ledger
from infer_engine.fleet.tracked import Intent, Tracked
from infer_engine.protocol import FinishReason
from support.fleets import spec


def ledger(clock: Callable[[], float] = lambda: 5.0) -> Ledger:
    return Ledger(Feed(), clock)


def enter(book: Ledger, request_id: str, replica: str | None = None) -> Tracked:
    request = book.enter(Generation(id=request_id, spec=spec(), arrived_s=1.0))
    if replica is not None:
        book.place(request, replica)
    return request


def test_a_request_is_on_one_replica_at_a_time() -> None:
    book = ledger()
    first, second = enter(book, "a", "r0"), enter(book, "b", "r0")
    assert book.on("r0") == [first, second]
    book.displace(first)
    assert (book.on("r0"), first.generation.replica) == ([second], None)
    book.place(first, "r1")
    assert (book.on("r1"), book.on("r9")) == ([first], [])
    book.forget(first)
    assert (book.on("r1"), book.row("a"), book.knows("a")) == ([], None, False)


def test_it_ends_once_and_its_row_stays() -> None:
    book = ledger()
    ended: list[Tracked] = []
    book.on_finish(ended.append)
    request = enter(book, "a", "r0")
    request.state, request.blocks = "running", 3
    book.finish(request, "length", freed_blocks=3)
    book.finish(request, "error", code="late", error="too late")
    assert (request.generation.finish_reason, request.generation.error_code) == ("length", None)
    assert (book.finished, ended) == ({"length": 1}, [request])
    assert [(event.kind, event.reason, event.blocks) for event in book.feed.events()] == [
        ("finish", "length", 3)
    ]
    row = book.row("a")
    assert row is not None
    assert (row.state, row.replica, row.kv_blocks, row.age_s) == ("finished", "r0", 0, 4.0)
    assert (book.on("r0"), book.live) == ([], {})


def test_only_the_last_thousand_are_remembered() -> None:
    book = ledger()
    for number in range(MOST_TOMBSTONES + 5):
        book.finish(enter(book, f"{number}"), "stop")
    rows = book.tombstones()
    assert len(rows) == MOST_TOMBSTONES
    assert (rows[0].id, rows[-1].id) == (f"{MOST_TOMBSTONES + 4}", "5")
    assert book.row("4") is None


def test_those_that_ended_after_a_moment_are_told_the_latest_first() -> None:
    at = iter(range(1_000, 2_000))
    book = Ledger(Feed(wall := lambda: float(next(at))), lambda: 5.0)
    for number in range(5):
        book.finish(enter(book, f"{number}"), "stop")
    ended = [row.ended_at for row in book.tombstones()]
    assert None not in ended
    assert [row.id for row in book.ended_after(0.0, 3)] == ["4", "3", "2"]
    assert [row.id for row in book.ended_after(ended[2] or 0.0, 9)] == ["4", "3"]
    assert book.ended_after(wall(), 9) == []


@pytest.mark.parametrize("reported", get_args(FinishReason))
def test_a_stop_string_was_seen_whatever_else_happened(reported: FinishReason) -> None:
    request = enter(ledger(), "a")
    request.intent = Intent("stop", "stop_string", "")
    assert ending(request, reported, "kv_exhausted") == ("stop", None, None)


def test_what_finished_before_it_could_be_cancelled_did_finish() -> None:
    request = enter(ledger(), "a")
    assert ending(request, "length") == ("length", None, None)
    request.intent = Intent("cancelled", "client_disconnected", "")
    assert ending(request, "length") == ("length", None, None)
    assert ending(request, "cancelled")[:2] == ("cancelled", "client_disconnected")
    assert ending(request, "error", "kv_exhausted")[:2] == ("error", "kv_exhausted")
