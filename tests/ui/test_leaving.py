"""What may hold up the exit adds up to less than two seconds. Waits are counted, not measured."""

import os
import pty
import select
import sys
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
from infer_console import collector
from infer_console.cli import tui
from infer_console.ui import departure, leaving
from infer_console.ui.backpressure import is_stuck, takes_more
from infer_console.ui.leaving import TerminalGuard
from support.eventually import eventually

END_S = 2.0


class Waits:
    """In place of the event that says that the program has left by itself: it never does."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def wait(self, timeout: float) -> bool:
        self.waited_s += timeout
        return False


class EndedError(Exception):
    pass


def ended(monkeypatch: pytest.MonkeyPatch, looks: Generator[bool]) -> tuple[float, int, list[str]]:
    """For how long a guard waited, the status it ended with, and what it did before."""
    guard, waits, done = TerminalGuard(), Waits(), list[str]()
    statuses: list[int] = []

    def end(status: int) -> None:
        statuses.append(status)
        raise EndedError

    monkeypatch.setattr(guard, "_over", waits)
    monkeypatch.setattr(guard, "restore", lambda: done.append("restored"))
    monkeypatch.setattr(os, "_exit", end)
    watch: Any = guard._watch  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(EndedError):
        watch(143, lambda: next(looks))
    return waits.waited_s, statuses[0], done


def forever(*first: bool) -> Generator[bool]:
    yield from first
    while True:
        yield first[-1]


def test_a_terminal_that_takes_nothing_holds_the_exit_for_less_than_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ended(monkeypatch, forever(True)) == (leaving.LIMIT_S, 143, ["restored"])
    assert leaving.LIMIT_S < 1.0


def test_one_that_takes_something_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s, _, _ = ended(monkeypatch, forever(True, True, False, True))
    assert waited_s == 3 * leaving.LOOK_S + leaving.LIMIT_S
    assert ended(monkeypatch, forever(False))[0] == leaving.SLOW_LIMIT_S


def test_all_waits_after_a_signal_together() -> None:
    """An answer that does not come, a terminal that gets stuck only then, a collector that does not end."""
    assert departure.ANSWER_S + leaving.LIMIT_S + tui.SIGNALLED_STOP_S < END_S


def test_collectors_end_at_the_same_time() -> None:
    calls: list[tuple[str, float]] = []

    def one(name: str) -> Any:
        return SimpleNamespace(
            end=lambda: calls.append((f"end {name}", 0.0)),
            stop=lambda timeout_s: calls.append((f"stop {name}", timeout_s)),
        )

    collector.stop_all([one("a"), one("b"), one("c")], 0.3)
    assert [what for what, _ in calls] == ["end a", "end b", "end c", "stop a", "stop b", "stop c"]
    given = [timeout_s for _, timeout_s in calls[3:]]
    assert all(0 <= timeout_s <= 0.3 for timeout_s in given)
    assert given == sorted(given, reverse=True)


def test_a_write_that_waits_is_seen_though_no_queue_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb", buffering=0) as terminal:
        monkeypatch.setattr(sys, "__stderr__", terminal)
        nothing = SimpleNamespace(_driver=None)
        assert takes_more()
        os.set_blocking(theirs, False)
        while terminal.write(b"x" * 4096):
            pass
        os.set_blocking(theirs, True)
        writers: list[threading.Thread] = []

        def waits() -> bool:
            """The kernel moves on what a full terminal has, when it comes to it: there is room again, until
            nothing is left to move."""
            if not writers or not writers[-1].is_alive():
                writers.append(threading.Thread(target=terminal.write, args=(b"x" * 4096,), daemon=True))
                writers[-1].start()
            return not takes_more() and is_stuck(nothing)

        eventually(waits)
        while writers[-1].is_alive() or not takes_more():
            if select.select([ours], [], [], 0.05)[0]:
                os.read(ours, 65536)
        assert not is_stuck(nothing)
    os.close(ours)


def test_without_a_terminal_nothing_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stderr__", None)
    assert takes_more()
