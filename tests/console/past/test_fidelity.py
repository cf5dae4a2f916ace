"""What a live console drew is what is drawn again: from its tape, and from the recording that it exported."""

import dataclasses
from pathlib import Path

import pytest
from infer_console.diagnosis.judge import Judge
from infer_console.past.exporting import Exporting
from infer_console.past.moment import NO_TEXT
from infer_console.past.replayed import ReplayedRecording
from infer_console.past.taper import Taper
from infer_console.past.timeline import Timeline
from infer_console.recording import open_recording
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Link, Picture
from infer_console.state.series import INTERVAL_S
from support.incident import RECORDING, messages
from support.screens import drawn

#: The state's clock is not the server's.
CLOCK_S = 1_000.0
NAME = "incident"


class LiveConsole:
    """Does with each message what the collector does, at the moment that the message names."""

    def __init__(self) -> None:
        file, reader = open_recording(RECORDING)
        file.close()
        assert reader.header.history is not None
        self.state = ConsoleState(NAME)
        self.state.look_back(reader.header.history, reader.header.taken)
        self.judge = Judge()
        self.timeline = Timeline(NAME)
        self.taper = Taper(self.timeline.own, self.state, self.judge)
        self.pictures: list[Picture] = []

    def run(self) -> None:
        told = messages()
        began_at = told[0][1].at
        sampled = 0
        self.state.opened()
        for line, envelope in told:
            while envelope.at >= began_at + (sampled + 1) * INTERVAL_S:
                sampled += 1
                self.draw(began_at + sampled * INTERVAL_S, began_at)
            if envelope.prev == 0:
                self.state.opened()
            now_s = envelope.at - began_at + CLOCK_S
            assert self.state.fold(envelope, now_s)
            self.taper.message(envelope, line, now_s)

    def draw(self, at: float, began_at: float) -> None:
        now_s = at - began_at + CLOCK_S
        assert self.state.sample(now_s)
        self.taper.sampled(now_s)
        picture = self.judge.judged(self.state.picture(at, now_s), now_s)
        self.taper.drawn(picture, now_s)
        self.pictures.append(picture)


@pytest.fixture(scope="module")
def live() -> LiveConsole:
    console = LiveConsole()
    console.run()
    return console


def comparable(picture: Picture) -> Picture:
    """Without what is told of the connection, and generated text, which is recorded nowhere."""
    return dataclasses.replace(picture, link=Link(url="", state="live", age_s=0.0), streams_message=NO_TEXT)


async def test_the_tape_shows_what_was_shown(live: LiveConsole) -> None:
    shown = [live.pictures[index] for index in (3, 9, 15, -1)]
    again = [live.timeline.picture(picture.at) for picture in shown]
    assert all(
        picture is not None and (picture.alarms, picture.findings) == (was.alarms, was.findings)
        for picture, was in zip(again, shown, strict=True)
    )
    assert any(picture.alarms for picture in shown)
    texts = await drawn([comparable(each) for each in (*shown, *filter(None, again))], "r0")
    for (screen, size), drawn_texts in texts.items():
        for was, now in zip(drawn_texts[: len(shown)], drawn_texts[len(shown) :], strict=True):
            assert now == was, f"{screen} {size}"


async def test_the_exported_recording_shows_what_was_shown(live: LiveConsole, tmp_path: Path) -> None:
    span = live.timeline.span()
    assert span is not None
    path = tmp_path / NAME
    from_at = span[0] + 7.3
    Exporting(timeline=live.timeline, from_at=from_at, to_at=span[1], path=path, redact=False).run(None)
    recording = ReplayedRecording(path)
    recording.start()
    try:
        assert recording.done.wait(60)
        assert recording.trouble == ""
        shown = [live.pictures[index] for index in (6, 10, -1)]
        again = [recording.timeline.picture(picture.at) for picture in shown]
        # Alarms that stood when it began are known to have stood at least as long.
        shown = [
            dataclasses.replace(was, alarms=now.alarms, findings=now.findings)
            for was, now in zip(shown, again, strict=True)
            if now is not None
        ]
        texts = await drawn([comparable(each) for each in (*shown, *filter(None, again))], "r0")
    finally:
        recording.stop()
    for (screen, size), drawn_texts in texts.items():
        for was, now in zip(drawn_texts[: len(shown)], drawn_texts[len(shown) :], strict=True):
            assert now == was, f"{screen} {size}"
