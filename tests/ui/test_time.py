"""Pausing, scrubbing, marks, export and comparing, on the real screens."""

import dataclasses
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from infer_console.past.replayed import ReplayedRecording
from infer_console.past.when import moment
from infer_console.state.audit import AuditEntry, AuditPicture
from infer_console.state.picture import TimelinePicture
from infer_console.ui.app import ConsoleApp
from infer_console.ui.themes import DEFAULT
from infer_engine.protocol import Timeline, TimelineAside, TimelineEntry, TtftSplit
from support.fake_collector import FakeCollector
from support.incident import RECORDING, replayed
from support.pilot import Driven


class PastCollector(FakeCollector):
    """A console that was there during the incident, and is still connected."""

    def __init__(self, *, recorder: bool) -> None:
        self.timeline = replayed()
        span = self.timeline.span()
        assert span is not None
        self.first_at, self.last_at = span
        picture = self.timeline.picture(self.last_at)
        assert picture is not None
        assert picture.fleet is not None
        if not recorder:
            fleet = msgspec.structs.replace(picture.fleet, recorder=None)
            picture = dataclasses.replace(picture, fleet=fleet)
        super().__init__(picture)
        self.fetched: list[float] = []
        self.audited_until: float | None = None
        self.fetching = ""
        self.replay = ReplayedRecording(RECORDING)

    def fetch_past(self, at: float) -> None:
        self.fetched.append(at)

    def audit_until(self, at: float | None) -> None:
        self.audited_until = at

    def export(self, from_at: float, to_at: float, path: Path, *, redact: bool = True):
        self.replay.timeline = self.timeline
        return self.replay.export(from_at, to_at, path, redact=redact)


class StandingApp(ConsoleApp):
    """Its live clock stands at the end of the incident."""

    def now(self) -> float:
        moment = self.time.moment
        return self.collector.picture.at if moment is None else moment


@asynccontextmanager
async def looking(*, recorder: bool = False) -> AsyncGenerator[tuple[Driven, PastCollector]]:
    """``recorder``: the server has more of the past."""
    collector = PastCollector(recorder=recorder)
    app = StandingApp(collector, theme=DEFAULT, past=collector)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            driven = Driven(app, collector, pilot)
            await driven.wait_for("op-2 headroom")
            yield driven, collector
    finally:
        collector.replay.stop()


async def test_the_past_is_shown_on_every_screen_and_end_goes_back() -> None:
    async with looking() as (driven, collector):
        await driven.press("p")
        assert "PAUSED" in driven.lines[0]
        assert " TIME " in driven.lines[-2]
        await driven.press("left_curly_bracket")  # further back than there is: the beginning
        assert driven.app.now() == collector.first_at
        assert "PAST" in driven.lines[0]
        assert "op-2" not in driven.text
        for key, screen in (("2", "replica"), ("5", "events"), ("1", "fleet")):
            await driven.press(key)
            assert "PAST" in driven.lines[0], screen
            assert "●" in driven.lines[-2]
        await driven.press("right_square_bracket")
        assert driven.app.now() == collector.first_at + 5.0
        await driven.press("D")
        await driven.wait_for("action keys are off")
        assert collector.commands == []
        await driven.press("end")
        assert "PAST" not in driven.lines[0]
        assert " TIME " not in driven.text
        assert "op-2" in driven.text


async def test_a_time_of_day_may_be_later_than_what_is_shown() -> None:
    """Who looks at the past goes on from there: not to yesterday."""
    async with looking() as (driven, collector):
        await driven.press("p", "left_curly_bracket")
        later = collector.first_at + 20.0
        word = time.strftime("%H:%M:%S", time.gmtime(later))
        await driven.press("colon")
        await driven.type(f"at {word}")
        await driven.press("enter")
        assert driven.app.now() == pytest.approx(int(later), abs=0.01)
        await driven.press("left_curly_bracket")
        assert driven.app.now() == collector.first_at
        assert driven.app.looking_back.show_diff(word, "now") is None
        await driven.settle()
        assert "What differs" in driven.text
        await driven.press("escape")
        # After what is kept: the last one that was.
        assert moment("23:59:59", 0.0, latest=50_000.0) == -1.0
        assert moment("10:00", 0.0, latest=50_000.0) == 36_000.0


async def test_marks_are_gone_to_and_set() -> None:
    async with looking() as (driven, collector):
        await driven.press("left_parenthesis")
        await driven.wait_for("headroom r0")
        headroom = next(mark for mark in collector.timeline.marks() if mark.sign == "H")
        assert driven.app.now() == pytest.approx(headroom.at)
        await driven.press("m")
        await driven.wait_for("e exports from here")
        assert collector.timeline.marks()[-1].at == pytest.approx(headroom.at)
        await driven.press("right_parenthesis")
        await driven.wait_for("no mark there")


async def test_an_export_begins_at_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with looking() as (driven, collector):
        await driven.press("e")
        await driven.wait_for("messages,")
    (name,) = os.listdir(tmp_path)
    path = tmp_path / name
    again = ReplayedRecording(path)
    again.start()
    try:
        assert again.done.wait(60)
        assert again.header.redacted
        assert again.trouble == ""
        span = again.timeline.span()
        own = next(mark.at for mark in collector.timeline.marks() if mark.kind == "own")
        assert span == (pytest.approx(own), pytest.approx(collector.last_at))
        assert [mark.text for mark in again.timeline.marks() if mark.kind == "own"] == ["it got slow"]
    finally:
        again.stop()


async def test_a_time_that_is_not_here_is_fetched_and_shown_when_it_comes() -> None:
    async with looking(recorder=True) as (driven, collector):
        fleet = collector.picture.fleet
        assert fleet is not None
        assert fleet.recorder is not None
        assert fleet.recorder.from_at is not None
        wanted_at = fleet.recorder.from_at + 0.5
        assert wanted_at < collector.first_at
        driven.app.looking_back.jump_to(wanted_at)
        assert collector.fetched == [wanted_at]
        assert driven.app.now() == collector.picture.at  # what is shown stays until it has come
        assert "○" in driven.lines[-2]
        collector.timeline.add_piece(replayed(wanted_at - collector.first_at - 20.0).own)
        await driven.show(collector.picture)
        assert driven.app.now() == wanted_at
        assert "○" not in driven.lines[-2]


async def test_two_moments_beside_each_other() -> None:
    async with looking() as (driven, _):
        driven.app.looking_back.jump_to(driven.app.time.picture.at)
        assert driven.app.looking_back.show_diff("-36s", "now") is None
        await driven.settle()
        assert "What differs" in driven.text
        assert "ready replicas" in driven.text
        await driven.press("x")
        assert driven.app.looking_back.show_diff("r0", "r1") is None
        await driven.settle()
        assert "drained" in driven.text
        await driven.press("x")
        assert "there is no replica r9" in (driven.app.looking_back.show_diff("r9", "now") or "")


async def test_a_recording_plays_and_stops_at_its_end() -> None:
    recording = ReplayedRecording(RECORDING)
    recording.start()
    app = ConsoleApp(recording, theme=DEFAULT, past=recording, replay_speed=50.0)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            driven = Driven(app, FakeCollector(recording.picture), pilot)
            await driven.wait("its end", lambda: app.time.speed is None and recording.done.is_set())
            span = recording.timeline.span()
            assert span is not None
            assert app.now() == span[1]
            await driven.wait_for("REPLAY")
            assert "‖" in driven.lines[0]
            assert "drained" in driven.text
            await driven.press("left_square_bracket")
            assert app.now() == span[1] - 5.0
            await driven.press("D")
            assert "action keys" in driven.text
            assert app.time._usual_speed == 50.0
            app.time._usual_speed = 0.5  # five seconds of it are over before they are looked at
            await driven.press("p")
            assert "▶ ×0.5" in driven.lines[0]
    finally:
        recording.stop()


def happened(request: str, began_at: float) -> Timeline:
    """It waits for 10 s, and ends after 20."""
    kinds = (("arrived", 0.0), ("queued", 0.2), ("admitted", 10.0), ("first_token", 12.0), ("finished", 20.0))
    entries = [TimelineEntry(kind=kind, at_s=at_s) for kind, at_s in kinds]
    return Timeline(request=request, began_at=began_at, entries=entries, ttft_split_s=TtftSplit())


async def test_a_timeline_is_that_of_the_moment_from_the_server_or_from_what_was_recorded() -> None:
    async with looking() as (driven, collector):
        began_at = collector.first_at + 3.0
        collector.timeline.own.kept.add(TimelineAside(timeline=happened("q-kept", began_at)))
        driven.app.looking_back.jump_to(began_at + 5.0)
        driven.app.open_timeline("q-kept")
        await driven.settle()
        await driven.wait_for("queued")
        assert "TIMELINE q-kept" in driven.text
        assert "first token" not in "\n".join(driven.lines[6:-2]).replace("1 first token", "")
        driven.app.looking_back.jump_to(began_at + 13.0)
        await driven.wait_for("first token")
        driven.app.looking_back.jump_to(began_at - 1.0)
        await driven.wait_for("it had not arrived yet")
        # One that the server still knows is told by it, up to the moment.
        driven.app.looking_back.jump_to(began_at + 11.0)
        driven.app.open_timeline("q-asked")
        await driven.settle()
        assert collector.timeline_of == "q-asked"
        told = TimelinePicture("q-asked", happened("q-asked", began_at), at=collector.last_at)
        await driven.show(dataclasses.replace(collector.picture, timeline=told))
        await driven.wait_for("admitted")
        assert "TIMELINE q-asked" in driven.text
        assert "finished" not in "\n".join(driven.lines[6:-2]).replace("F finished", "")


async def test_the_audit_is_that_of_the_moment() -> None:
    async with looking() as (driven, collector):
        at = collector.first_at + 10.0
        await driven.press("8")
        driven.app.looking_back.jump_to(at)
        assert collector.audited_until == at
        audit = AuditPicture(
            tuple(
                AuditEntry(number, at + 5.0 * (number - 2), "kim", "completed", verb, "r0", "200", "")
                for number, verb in ((3, "later"), (2, "just-now"), (1, "before"))
            )
        )
        await driven.show(dataclasses.replace(collector.picture, audit=audit))
        await driven.wait_for("just-now")
        assert "later" not in driven.text
        assert "before" in driven.text
        await driven.press("end")
        assert collector.audited_until is None
        await driven.wait_for("later")


async def test_a_replay_says_what_its_recording_lacks() -> None:
    recording = ReplayedRecording(RECORDING)
    recording.start()
    assert recording.done.wait(60)
    app = ConsoleApp(recording, theme=DEFAULT, past=recording, replay_speed=1.0, replay_at="now")
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            driven = Driven(app, FakeCollector(recording.picture), pilot)
            app.looking_back.jump_to(app.time.picture.at + 1e9)
            await driven.press("8")
            await driven.wait_for("no audit is in this recording")
            recording.done.clear()
            await driven.wait_for("the recording is still being read")
            recording.done.set()
            await driven.wait_for("no audit is in this recording")
            app.open_timeline("q-unknown")
            await driven.settle()
            await driven.wait_for("its timeline is not in this recording")
            await driven.press("1", "D")
            await driven.wait_for("this is a recording: action keys are off")
    finally:
        recording.stop()
