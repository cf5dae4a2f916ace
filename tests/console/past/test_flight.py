"""What is asked of a server's flight recorder, and what is not."""

import io
from collections.abc import AsyncGenerator

import pytest
from infer_console.past import timeline as timeline_module
from infer_console.past.flight import FlightRecords
from infer_console.past.timeline import Timeline
from infer_console.recording import Header, RecordingWriter
from infer_engine.protocol import History
from support.incident import messages, moved

#: 1970-01-01 10:55:21 UTC.
BEGAN_AT = 39_321.0


class Recorder:
    """Notes the spans that it is asked for, and has nothing of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[float | None, float | None]] = []

    async def recording(self, from_at: float | None, to_at: float | None) -> AsyncGenerator[bytes]:
        self.asked.append((from_at, to_at))
        raise ConnectionError("asked")
        yield b""

    async def history(self, seconds: float, step_s: float) -> History:
        raise ConnectionError("asked")


async def test_nothing_is_asked_of_the_time_before_the_record_and_its_beginning_is_said() -> None:
    recorder = Recorder()
    now_s = [0.0]
    flight = FlightRecords(Timeline("x"), "x", lambda: now_s[0])
    for before_s in (300.0, 31.0, 5.0):
        await flight.fetch(recorder, BEGAN_AT - before_s, BEGAN_AT)
        assert flight.progress == "the server's record begins 10:55:21Z"
    assert recorder.asked == []
    now_s[0] += 10.0
    assert flight.progress == "", "it is not said for ever"
    await flight.fetch(recorder, BEGAN_AT - 5.0, BEGAN_AT)
    try:
        await flight.fetch(recorder, BEGAN_AT + 5.0, BEGAN_AT)
    except ConnectionError:
        assert recorder.asked == [(BEGAN_AT, BEGAN_AT + 35.0)]
    else:
        raise AssertionError("nothing was asked of a time that is kept")
    assert "begins" not in flight.progress


class Incident(Recorder):
    """Has the incident, wherever it is asked for it."""

    async def recording(self, from_at: float | None, to_at: float | None) -> AsyncGenerator[bytes]:
        self.asked.append((from_at, to_at))
        assert from_at is not None
        told, file = messages(), io.BytesIO()
        with RecordingWriter(file, Header()) as writer:
            for line, _ in (moved(each, from_at + 1.0 - told[0][1].at) for each in told):
                writer.write(line)
        yield file.getvalue()

    async def history(self, seconds: float, step_s: float) -> History:
        return History(sample_s=1.0, until_at=BEGAN_AT, step_s=step_s, fleet={}, replicas={})


async def test_what_had_to_go_for_other_times_is_fetched_anew_and_two_of_any_size_can_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline_module, "PIECES_BYTES", 1)
    recorder, timeline = Incident(), Timeline("x")
    flight = FlightRecords(timeline, "x", lambda: 0.0)
    first_at, second_at, third_at = (BEGAN_AT + 600.0 * number for number in (1, 2, 3))
    await flight.fetch(recorder, first_at, BEGAN_AT)
    await flight.fetch(recorder, second_at, BEGAN_AT)
    assert timeline.pieces_bytes > 2
    assert timeline.picture(first_at) is not None, "one that is larger than all may be is shown, too"
    assert timeline.picture(second_at) is not None
    await flight.fetch(recorder, third_at, BEGAN_AT)
    assert [timeline.has(at) for at in (first_at, second_at, third_at)] == [False, True, True]
    await flight.fetch(recorder, third_at, BEGAN_AT)
    assert len(recorder.asked) == 3, "what is here is not asked for again at once"
    await flight.fetch(recorder, first_at, BEGAN_AT)
    assert timeline.picture(first_at) is not None
    monkeypatch.setattr(timeline_module, "PAIR_BYTES", 1)
    await flight.fetch(recorder, second_at, BEGAN_AT)
    assert [timeline.has(at) for at in (first_at, second_at, third_at)] == [False, True, False]
