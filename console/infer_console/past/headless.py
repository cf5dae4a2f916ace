"""Recording without a screen, for days: files that follow each other in a directory; the oldest go."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
from infer_engine.protocol import Envelope, EventDelta
from msgspec.structs import replace

from infer_console.past.files import new_file, open_new
from infer_console.past.gather import gather
from infer_console.past.snapshot import snapshot_deltas, snapshot_lines
from infer_console.past.when import stamp
from infer_console.recording import Header, RecordingError, RecordingWriter
from infer_console.sources.client import EngineClient
from infer_console.sources.engine import EngineSource
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.sources.interest import DETAILS, MAX_REPLICAS, Interest
from infer_console.state.fold import ConsoleState

#: What is lost in a crash is less than this.
FLUSH_S = 1.0
RECORDED_HZ = 2.0
#: Timelines and audit are asked for this often, and once more at the end, for so long.
GATHER_S = 30.0
LAST_GATHER_S = 2.0
#: A disk that did not take a file is tried again after this long.
AFTER_FAULT_S = 5.0
ENDING = ".icr"
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    max_bytes: int
    max_age_s: float
    #: A file is followed by the next after this long, or when it is an eighth of all that may be kept.
    file_s: float

    @property
    def file_bytes(self) -> int:
        return max(1, min(self.max_bytes // 8, 256 * 1024 * 1024))


class HeadlessRecorder:
    """``run`` records until it is cancelled, whatever becomes of the server; ``say`` is told what an operator
    should know, a line at a time."""

    def __init__(
        self,
        client: EngineClient,
        directory: Path,
        retention: Retention,
        say: Callable[[str], None],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._directory = directory
        self._retention = retention
        self._say = say
        self._wall = wall
        self._state = ConsoleState(client.target.url)
        self._source = EngineSource(client, self._state, self._changed, folded=self._message)
        self._file: BinaryIO | None = None
        self._writer: RecordingWriter | None = None
        self._path: Path | None = None
        self._began_at = 0.0
        self._last: Envelope | None = None
        self._link = ""
        self._was_live = False
        self._tried_s = -AFTER_FAULT_S
        #: Up to when timelines and audit were asked for.
        self._gathered_at: float | None = None
        #: Messages that were written, and the seconds of which nothing is there.
        self.messages = 0
        self.lost_s = 0.0
        self.gaps = 0
        #: Messages that could not be written.
        self.unwritten = 0

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._source.run())
                group.create_task(self._look_after())
                group.create_task(self._gather_forever())
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_GATHER_S):
                    await self._gather()
            self._close()
            self._say(self.summary())

    def summary(self) -> str:
        gaps = "1 gap" if self.gaps == 1 else f"{self.gaps} gaps"
        lost = f"nothing lost in {gaps}" if self.gaps else "nothing lost"
        if self.lost_s:
            lost = f"{self.lost_s:.1f} s lost in {gaps}"
        if self.unwritten:  # and what waited to be written when the disk did not take it
            heard = f"{lost} on the way" if self.lost_s else "all came"
            lost = f"{heard}, at least {self.unwritten:,} messages could not be written"
        return f"{self.messages:,} messages recorded, {lost}"

    # --- what comes

    def _changed(self) -> None:
        link = self._state.link.state
        if link != self._link:
            if link == "lost":
                self._say("connection lost; trying again")
            elif link == "live":
                self._say(f"recording into {self._directory}" if not self._was_live else "connected")
                self._was_live = True
            self._link = link
            self._note_link()
        replicas = tuple(sorted(self._state.series.keys() - {""}))[:MAX_REPLICAS]
        if self._state.is_whole and replicas:
            self._source.set_interest(Interest(replicas, DETAILS, RECORDED_HZ))

    def _note_link(self) -> None:
        """Where nothing is known, the recording says so: at the last that was heard before, and at the first
        after it. Not why, which would name places that no server ever does."""
        last = self._last
        if last is None:
            return
        for event in self._state.notice(last.at):
            told = replace(last, prev=last.seq, delta=EventDelta(event=replace(event, message=None)))
            self._put_beside([_encoder.encode(told)])

    def _message(self, envelope: Envelope, line: bytes, now_s: float) -> None:
        if envelope.prev == 0 and self._last is not None and self._link == "lost":
            missing_s = envelope.at - self._last.at
            if missing_s > 0:
                self.gaps += 1
                self.lost_s += missing_s
                self._say(f"lost {missing_s:.1f} s, from {stamp(self._last.at)} to {stamp(envelope.at)}")
        self._last = envelope
        if self._gathered_at is None:
            self._gathered_at = envelope.at
        try:
            self._keep(envelope, line)
        except OSError as error:
            self._drop(error)

    def _keep(self, envelope: Envelope, line: bytes) -> None:
        if self._writer is None and not self._begin(envelope):
            self.unwritten += 1
            return
        assert self._writer is not None
        assert self._file is not None
        self._writer.write(line)
        self.messages += 1
        full = self._file.tell() >= self._retention.file_bytes
        if (full or envelope.at - self._began_at >= self._retention.file_s) and self._can_begin():
            self._close()
            self._begin(envelope)

    def _can_begin(self) -> bool:
        return self._state.is_whole and bool(self._state.position[1])

    def _begin(self, envelope: Envelope) -> bool:
        """A new file, which starts with a snapshot: the server's, or what is known."""
        natural = envelope.prev == 0
        if not (natural or self._can_begin()) or time.monotonic() - self._tried_s < AFTER_FAULT_S:
            return False
        self._prune()
        picture = self._state.picture(envelope.at, time.monotonic())
        self._path = new_file(
            picture.fleet.name if picture.fleet is not None else "", self._wall(), self._directory
        )
        self._file = open_new(self._path)
        simulated = picture.fleet.simulated if picture.fleet is not None else False
        header = Header(epoch=envelope.epoch, made_at=self._wall(), simulated=simulated)
        self._writer = RecordingWriter(self._file, header)
        self._began_at = envelope.at
        if not natural:
            epoch, seq = self._state.position
            for known in snapshot_lines(snapshot_deltas(picture), epoch, seq, envelope.at):
                self._writer.write(known)
        return True

    # --- what is beside it

    async def _gather_forever(self) -> None:
        while True:
            await asyncio.sleep(GATHER_S)
            await self._gather()

    async def _gather(self) -> None:
        """Timelines and audit since the last time, into the file that is written now. A server that cannot be
        reached is asked for all of it the next time."""
        if self._writer is None or self._last is None or self._link != "live":
            return
        to_at = self._last.at
        try:
            lines = [line async for line in gather(self._client, self._gathered_at, to_at)]
        except (UnreachableError, NotUnderstoodError, RefusedError, RecordingError):
            return
        self._gathered_at = to_at
        self._put_beside(lines)

    def _put_beside(self, lines: list[bytes]) -> None:
        if self._writer is None:
            return
        try:
            for line in lines:
                self._writer.aside(line)
        except OSError as error:
            self._drop(error)

    # --- files

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                if self._writer is not None:
                    self._writer.flush()
                self._prune()
            except OSError as error:
                self._drop(error)

    def _drop(self, error: OSError) -> None:
        """The disk does not take it: what waited to be written is lost, and what comes until it does."""
        self.unwritten += 1
        self._say(f"cannot write {self._path or self._directory}: {error.strerror or error}; trying again")
        self._tried_s = time.monotonic()
        self._writer = None
        if self._file is not None:
            with contextlib.suppress(OSError):  # it was told
                self._file.close()
        self._file = None

    def _close(self) -> None:
        writer, file = self._writer, self._file
        self._writer = self._file = None
        try:
            if writer is not None:
                writer.flush()
            if file is not None:
                file.close()
        except OSError as error:
            self.unwritten += 1
            self._say(f"cannot write {self._path}: {error.strerror or error}")

    def _prune(self) -> None:
        """Remove what is beyond the bounds, the oldest first, never the file that is being written."""
        found: list[tuple[int, Path, int]] = []
        for path in self._directory.glob(f"*{ENDING}"):
            if path != self._path:
                status = path.stat()
                found.append((status.st_mtime_ns, path, status.st_size))
        found.sort()
        total = sum(size for _, _, size in found) + (self._file.tell() if self._file is not None else 0)
        oldest_at = self._wall() - self._retention.max_age_s
        for changed_ns, path, size in found:
            if total <= self._retention.max_bytes and changed_ns / 1e9 >= oldest_at:
                return
            path.unlink(missing_ok=True)
            total -= size
            self._say(f"removed {path.name}, {size / 1e6:.1f} MB")
