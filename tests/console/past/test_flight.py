"""What is asked of a server's flight recorder, and what is not."""

from collections.abc import AsyncGenerator

from infer_console.past.flight import FlightRecords
from infer_console.past.timeline import Timeline
from infer_engine.protocol import History

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
