"""The event feed: numbered, bounded, and deaf to the troubles of its listeners."""

import logging

import pytest
from infer_engine.fleet.feed import HISTORY, Feed, FeedItem
from infer_engine.protocol import Event


def test_events_are_numbered_and_kept_up_to_a_bound() -> None:
    feed = Feed(wall=lambda: 12.5)
    for number in range(HISTORY + 5):
        feed.event("admit", request=f"{number}")
    kept = feed.events()
    assert len(kept) == HISTORY
    assert (kept[0].seq, kept[-1].seq, kept[-1].at) == (6, HISTORY + 5, 12.5)
    assert [event.seq for event in feed.events(limit=2)] == [HISTORY + 4, HISTORY + 5]
    assert [event.seq for event in feed.events(after=HISTORY + 4)] == [HISTORY + 5]
    assert feed.events(limit=0) == []


def test_a_listener_hears_until_it_leaves() -> None:
    feed = Feed()
    heard: list[FeedItem] = []
    leave = feed.subscribe(heard.append)
    feed.event("admit")
    leave()
    leave()
    feed.event("admit")
    assert [item.seq for item in heard if isinstance(item, Event)] == [1]


def test_one_that_fails_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed()
    heard: list[FeedItem] = []

    def fails(item: FeedItem) -> None:
        raise ValueError("no")

    feed.subscribe(fails)
    feed.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        feed.event("admit")
    assert len(heard) == 1
    assert "subscriber failed" in caplog.text


def test_one_may_leave_while_it_is_told() -> None:
    feed = Feed()
    heard: list[FeedItem] = []

    def once(item: FeedItem) -> None:
        leave()
        heard.append(item)

    leave = feed.subscribe(once)
    feed.subscribe(heard.append)
    feed.event("admit")
    feed.event("admit")
    assert len(heard) == 3
