"""What the server's clock shows, from the times of its messages and a clock of ours that does not jump."""

from infer_console.state.server_clock import AGREE_S, PATIENCE_S, ServerClock

WALL = 1_000_000.0
#: What ``WALL`` shows when our clock without jumps shows this.
NOW_S = 50.0


def told(ahead_s: float) -> ServerClock:
    clock = ServerClock()
    clock.told(WALL + ahead_s, NOW_S)
    return clock


def test_where_nothing_was_told_and_where_both_agree_it_is_ours() -> None:
    assert ServerClock().at(WALL, NOW_S) == WALL
    assert told(AGREE_S / 2).at(WALL + 7.0, NOW_S + 7.0) == WALL + 7.0


def test_one_that_differs_is_the_servers_whatever_becomes_of_ours() -> None:
    for ahead_s in (-600.0, 3_600.0):
        clock = told(ahead_s)
        assert clock.at(WALL + 7.0, NOW_S + 7.0) == WALL + ahead_s + 7.0
        assert clock.at(WALL - 86_400.0, NOW_S + 7.0) == WALL + ahead_s + 7.0  # ours was set back a day


def test_late_messages_are_no_other_clock_but_the_first_that_was_in_time_tells_better() -> None:
    clock = told(-600.0)
    clock.told(WALL - 600.0, NOW_S + 4.0)  # the link stood for four seconds,
    clock.told(WALL - 595.5, NOW_S + 4.5)  # and delivers what it kept
    assert clock.at(WALL + 5.0, NOW_S + 5.0) == WALL - 595.0
    clock.told(WALL - 594.0, NOW_S + 5.0)  # that one took a second less than the very first
    assert clock.at(WALL + 5.0, NOW_S + 5.0) == WALL - 594.0


def test_a_server_that_sets_its_clock_is_followed_at_once_forward_and_soon_back() -> None:
    clock = told(-600.0)
    clock.told(WALL + 3_600.0, NOW_S)
    assert clock.at(WALL, NOW_S) == WALL + 3_600.0
    clock.told(WALL - 60.0, NOW_S + 1.0)
    assert clock.at(WALL, NOW_S + 1.0) == WALL + 3_601.0
    clock.told(WALL - 60.0 + PATIENCE_S, NOW_S + 1.0 + PATIENCE_S)
    assert clock.at(WALL, NOW_S + 1.0 + PATIENCE_S) == WALL - 60.0 + PATIENCE_S
