"""Pieces of the server's flight recorder, fetched when somebody scrubs to a time, or looks at a detail, that
this console was not told of. One at a time, in the background, bounded in bytes."""

import io
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from infer_engine.protocol import History

from infer_console.past.aside import aside
from infer_console.past.load import Loader, before, load
from infer_console.past.tape import Tape
from infer_console.past.timeline import PIECE_TOLERANCE_S, Timeline
from infer_console.past.when import clock_of_day
from infer_console.recording import RecordingReader

#: Fetched at once, around the moment that was asked for.
PIECE_S = 60.0
#: Of what comes over the wire; what is beyond is left out, and said to be.
MOST_BYTES = 16 * 1024 * 1024
HISTORY_S = 3_600.0
HISTORY_STEP_S = 20.0
#: A time that could not be had is asked for again after this long.
AGAIN_AFTER_S = 10.0
MOST_REMEMBERED = 64
#: That there is nothing to ask for is said for so long: nobody would take it back.
SAID_S = 6.0


class RecorderClient(Protocol):
    def recording(self, from_at: float | None, to_at: float | None) -> AsyncGenerator[bytes]: ...

    async def history(self, seconds: float, step_s: float) -> History: ...


class FlightRecords:
    """``fetch`` lives on one loop; ``progress`` may be read by any thread."""

    def __init__(self, timeline: Timeline, url: str, clock: Callable[[], float]) -> None:
        self._timeline = timeline
        self._url = url
        self._clock = clock
        self._busy = False
        #: Moments asked for, and when.
        self._asked: list[tuple[float, float]] = []
        self.said = ""
        self._said_until_s: float | None = None

    @property
    def progress(self) -> str:
        """What is under way or went wrong, in a few words; server text, not yet safe to print."""
        until_s = self._said_until_s
        return self.said if until_s is None or self._clock() < until_s else ""

    @progress.setter
    def progress(self, text: str) -> None:
        self.said, self._said_until_s = text, None

    async def fetch(self, client: RecorderClient, at: float, earliest_at: float) -> None:
        """What the recorder has around a moment. Raises what ``client`` raises."""
        if self._busy:
            return
        if at < earliest_at:  # there is nothing to ask for
            self.progress = f"the server's record begins {clock_of_day(earliest_at)}"
            self._said_until_s = self._clock() + SAID_S
            return
        if self._was_asked(at):
            return
        self._busy = True
        self._asked.append((at, self._clock()))
        del self._asked[:-MOST_REMEMBERED]
        self.progress = "fetching"
        try:
            content = await self.read(client, max(earliest_at, at - PIECE_S / 2), at + PIECE_S / 2)
            history = await client.history(HISTORY_S, HISTORY_STEP_S)
            self.progress = "reading"
            tape = await aside(lambda: self._load(content, history))
        except BaseException:
            self.progress = "that time could not be fetched"
            raise
        finally:
            self._busy = False
        if tape.span() is None:
            self.progress = "the server has nothing of that time"
            return
        gone = self._timeline.add_piece(tape)
        # Who goes back there need not wait: it was here, and is no more.
        self._asked = [
            (asked_at, when_s)
            for asked_at, when_s in self._asked
            if not any(piece.covers(asked_at, PIECE_TOLERANCE_S) for piece in gone)
        ]
        self.progress = ""

    def _was_asked(self, at: float) -> bool:
        now_s = self._clock()
        return any(
            abs(at - asked_at) < PIECE_S / 4 and now_s - when_s < AGAIN_AFTER_S
            for asked_at, when_s in self._asked
        )

    async def read(self, client: RecorderClient, from_at: float, to_at: float) -> bytes:
        """What it has of a time, at most ``MOST_BYTES``."""
        content = bytearray()
        async with aclosing(client.recording(from_at, to_at)) as chunks:
            async for chunk in chunks:
                content += chunk
                self.progress = f"fetching, {len(content) / 1e6:.1f} MB"
                if len(content) > MOST_BYTES:
                    break  # what is there is readable up to there
        return bytes(content)

    def _load(self, content: bytes, history: History) -> Tape:
        tape = Tape(MOST_BYTES)
        loader = Loader(tape, self._url)
        messages = RecordingReader(io.BytesIO(content), loader.aside).messages()
        first = next(messages, None)
        if first is not None:
            loader.look_back(before(history, first[1].at))
            loader.add(*first)
            load(messages, loader)
        return tape
