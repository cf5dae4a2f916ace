"""Seconds of the fleet's clock as moments."""

from infer_engine.fleet.moments import KEPT, Moments


def test_where_nothing_is_noted_the_pace_tells() -> None:
    moments = Moments(2.0)
    assert moments.at(90.0, 100.0, 1_000.0) == 995.0


def test_a_clock_that_fell_behind_does_not_make_what_was_later() -> None:
    """Asked for twice the speed, it ran at half of it from 1,000 to 1,020, and not at all until 1,030."""
    moments = Moments(2.0)
    for second in range(21):
        moments.note(second * 0.5, 1_000.0 + second)
    assert moments.at(5.0, 10.0, 1_030.0) == 1_010.0
    assert moments.at(5.25, 10.0, 1_030.0) == 1_010.5
    assert moments.at(10.0, 10.0, 1_030.0) == 1_030.0, "now"
    assert moments.at(-4.0, 10.0, 1_030.0) == 998.0, "before the first that is known: by the pace"


def test_between_the_last_note_and_now() -> None:
    moments = Moments(1.0)
    moments.note(10.0, 1_000.0)
    assert moments.at(11.0, 14.0, 1_002.0) == 1_000.5


def test_it_is_bounded_and_keeps_order() -> None:
    moments = Moments(1.0)
    for tenth in range(20 * KEPT):
        moments.note(tenth / 10, 1_000.0 + tenth / 10)
    now_s = 2.0 * KEPT
    assert moments.at(now_s - 100.0, now_s, 1_000.0 + now_s) == 1_000.0 + now_s - 100.0
    assert moments.at(0.0, now_s, 1_000.0 + now_s) == 1_000.0
    assert len(moments) == KEPT


def test_a_clock_that_stands_is_noted_once() -> None:
    moments = Moments(1.0)
    for second in range(5):
        moments.note(3.0, 1_000.0 + second)
    assert len(moments) == 1
