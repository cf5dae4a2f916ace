"""In small what the soaks of the console do for long."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from infer_console import heap
from infer_console.collector import Collector
from infer_console.connect import Target
from soak.console_cuts import Scene, cut, scene, stall
from soak.console_day import Report, judged, tell
from soak.watched import Held, Watcher, read, search_before_freezing
from support.eventually import eventually

#: Seconds after which a silent link is stale, and twice that lost.
SILENCE_S = 1.0


@pytest.fixture(scope="module")
def attached() -> Generator[Scene]:
    with scene(SILENCE_S) as made:
        yield made


def test_what_the_console_has_frozen_is_still_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "leave_alone", heap.leave_alone)  # as it was, afterwards
    collector = Collector(Target(url="unix:///nowhere"))
    watcher = Watcher(tmp_path / "told")
    search_before_freezing(watcher)
    try:
        heap.leave_alone()
        watcher.search()
        assert watcher.collectors.count(collector) == 1
    finally:
        gc.unfreeze()
    watcher.search()
    assert watcher.collectors.count(collector) == 1


@pytest.mark.terminal
def test_a_terminal_that_hangs_loses_nothing_and_gets_the_present(attached: Scene) -> None:
    stall(attached, 1.0)
    assert attached.report.faults == []
    assert attached.report.figures["stall_events"] > 4


@pytest.mark.terminal
def test_cut_off_it_says_so_and_goes_on_where_it_was(attached: Scene) -> None:
    cut(attached, 0.0)
    assert attached.report.faults == []
    assert attached.report.figures["cut_events"] > 2


@pytest.mark.terminal
def test_going_everywhere_twice_opens_nothing_more_than_going_once(attached: Scene) -> None:
    """Every screen, the past and back: tasks and files are those of the first time."""
    terminal = attached.terminal

    def tour() -> list[Held]:
        for key, shown in (("2", "ROSTER"), ("3", "REQUESTS"), ("4", "stream|text"), ("5", "EVENTS")):
            terminal.send(key)
            terminal.wait_for(shown)
        terminal.send("[")
        terminal.wait_for("PAST")
        terminal.send("end")
        terminal.wait_for("LIVE")
        terminal.send("1")
        terminal.wait_for("STATE")
        known = len(read(attached.told)) + 1  # the next may be of a moment before this one
        return eventually(lambda: read(attached.told)[known : known + 3][2:] and read(attached.told)[known:])

    first = tour()
    tour()
    tour()
    for count in ("tasks", "fds", "threads"):
        most = max(getattr(each, count) for each in first)
        eventually(lambda count=count, most=most: getattr(attached.held, count) <= most)


def held(at_s: float, **fields: object) -> Held:
    usual: dict[str, object] = {
        "rss_bytes": 100 << 20,
        "fds": 12,
        "threads": 6,
        "tasks": 60,
        "objects": 1,
        "tape_bytes": int(at_s) << 14,
        "pieces_bytes": 0,
        "link": "live",
        "resyncs": 0,
        "events": 1,
        "last_event": 1,
        "missing_events": 0,
        "alarms": ["drained"] if int(at_s) % 3 else [],
    }
    return Held(at_s=at_s, **usual | fields)  # type: ignore[arg-type]


def verdict(*told: Held) -> list[str]:
    report = Report(exports=1)
    tell(report, told, 60.0)
    return judged(report, told, 60.0)


def test_what_a_console_holds_more_of_in_the_evening_is_a_fault() -> None:
    day = [held(float(at), rss_bytes=(100 << 20) + (at << 14)) for at in range(0, 600, 10)]
    assert verdict(*day) == []
    assert verdict(*day[:-20], *(held(each.at_s, tasks=61) for each in day[-20:]))[0].startswith("tasks:")
    past = [
        held(float(at), rss_bytes=(100 << 20) + (at << 16), tape_bytes=at << 16) for at in range(0, 600, 10)
    ]
    assert verdict(*past) == ["memory grows by 3.75 MiB/min"], "what its past takes counts, too"
    growing = [held(float(at), rss_bytes=(at << 19)) for at in range(0, 600, 10)]
    assert [fault.split()[0] for fault in verdict(*growing)] == ["the", "memory"]
    assert verdict(held(1.0)) == ["the console told nothing after 60 s"]
