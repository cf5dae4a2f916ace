"""The flight recorder: what a watcher would have been told, kept compressed in memory, so that somebody who
comes after an incident began sees how it began.

A *segment* begins with a whole snapshot; any moment can be had from the segment that it is in. When memory is
full, the oldest segment goes.
"""

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import msgspec
import zstandard

from infer_engine.control.deltas import Deltas, Source
from infer_engine.control.frames import Detail
from infer_engine.control.outbox import Chain
from infer_engine.control.watch_query import Query
from infer_engine.fleet.timeline import TimelineLog
from infer_engine.protocol import PROTOCOL_VERSION, RecorderStatus, TimelineAside

log = logging.getLogger(__name__)

DEFAULT_BYTES = 64 * 1024 * 1024
SEGMENT_S = 30.0
#: Lines are compressed this many bytes at a time; until then they are kept as they are.
FRAME_BYTES = 256 * 1024
COMPRESSION_LEVEL = 3
#: Of the requests that ended, the timelines of so many a second are recorded, of more those that waited
#: longest; they take that share of the memory at most.
TIMELINES_PER_S = 32
TIMELINES_SHARE = 0.25
#: Of requests that still live, so many are told with a recording; and of those that ended up to so long after
#: its end.
MOST_LIVE = 256
LATER_S = 120.0
#: After a fault of ours the recording goes on, a little later.
AFTER_FAULT_S = 5.0


def recorded(replicas: int) -> Query:
    """In which detail so many replicas are recorded: what it costs must stay a few percent of a core."""
    if replicas <= 8:
        return Query(detail=Detail(roster=True, blocks=True, steps=True), hz=1.0)
    if replicas <= 64:
        return Query(detail=Detail(roster=True, blocks=False, steps=False), hz=0.5)
    return Query(detail=Detail(roster=False, blocks=False, steps=False), hz=0.1)


@dataclass(slots=True)
class Asides:
    """Timelines of requests that ended within a segment, as lines of a recording."""

    frames: list[bytes] = field(default_factory=list[bytes])
    pending: bytearray = field(default_factory=bytearray)
    bytes: int = 0


@dataclass(slots=True)
class Segment:
    from_at: float
    until_at: float
    #: Zstandard frames of whole lines.
    frames: list[bytes] = field(default_factory=list[bytes])
    pending: bytearray = field(default_factory=bytearray)
    #: Of ``frames`` and ``pending``.
    bytes: int = 0
    asides: Asides = field(default_factory=Asides)


class Recorder:
    """``run`` records until it is cancelled."""

    def __init__(
        self,
        source: Source,
        *,
        max_bytes: int = DEFAULT_BYTES,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._clock = clock
        self._wall = wall
        self._query = recorded(len(source.fleet.replica_ids()))
        self._chain = Chain(source.fleet.epoch, source.sequence, wall)
        self._deltas = Deltas(source, self._query, clock)
        self._segments: deque[Segment] = deque()
        self._bytes = 0
        self._aside_bytes = 0
        self._ended = 0
        self._ticked_s = clock()
        self._segment_began_s = 0.0
        self._compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)

    async def run(self) -> None:
        self._deltas.open()
        try:
            with self._deltas.observing():
                while True:
                    await self._record_for_a_while()
        finally:
            self._deltas.close()

    async def _record_for_a_while(self) -> None:
        """Until something in it fails, which is our fault: it is logged, and the next segment begins."""
        try:
            while True:
                self.tick()
                await asyncio.sleep(1 / self._query.hz)
        except Exception:
            log.exception("the flight recorder failed; it goes on with a new segment")
            self._segment_began_s = -SEGMENT_S
            await asyncio.sleep(AFTER_FAULT_S)

    def tick(self) -> None:
        """Record what changed since the last call."""
        now_s, now_at = self._clock(), self._wall()
        if (
            not self._segments
            or now_s - self._segment_began_s >= SEGMENT_S
            # Changes were dropped, or one segment would be all that there is.
            or self._deltas.queue.dropped
            or self._segments[-1].bytes > self._max_bytes // 4
        ):
            self._compress()
            self._segment_began_s = now_s
            self._segments.append(Segment(now_at, now_at))
            self._chain.restart()
            deltas = self._deltas.snapshot()
        else:
            deltas = self._deltas.changes()
        segment = self._segments[-1]
        segment.until_at = now_at
        for delta in deltas:
            line = self._chain.line(delta)
            segment.pending += line
            segment.pending += b"\n"
            self._count(segment, len(line) + 1)
        self._keep_timelines(segment, now_s)
        if len(segment.pending) >= FRAME_BYTES:
            self._compress()
        while self._bytes + self._aside_bytes > self._max_bytes and len(self._segments) > 1:
            gone = self._segments.popleft()
            self._bytes -= gone.bytes
            self._aside_bytes -= gone.asides.bytes

    def _keep_timelines(self, segment: Segment, now_s: float) -> None:
        """Of the requests that ended since the last tick."""
        most = max(1, int(TIMELINES_PER_S * max(0.0, now_s - self._ticked_s)))
        self._ticked_s = now_s
        self._ended, logs = self._source.fleet.timelines.ended_since(self._ended)
        if len(logs) > most:
            logs = heapq.nlargest(most, logs, key=lambda pair: pair[1].first_token_after_s)
        for request, log in logs:
            line = self._timeline(request, log)
            segment.asides.pending += line
            segment.asides.bytes += len(line)
            self._aside_bytes += len(line)
        if len(segment.asides.pending) >= FRAME_BYTES:
            self._compress_asides(segment)
        for oldest in self._segments:
            if self._aside_bytes <= self._max_bytes * TIMELINES_SHARE:
                break
            self._aside_bytes -= oldest.asides.bytes
            oldest.asides = Asides()

    def _timeline(self, request: str, log: TimelineLog) -> bytes:
        fleet = self._source.fleet
        document = log.document(request, fleet.moment, simulated=fleet.is_simulated)
        return msgspec.json.encode(TimelineAside(timeline=document)) + b"\n"

    def _compress_asides(self, segment: Segment) -> None:
        asides = segment.asides
        if asides.pending:
            frame = bytes(memoryview(self._compressor.compress(bytes(asides.pending))))
            asides.bytes += len(frame) - len(asides.pending)
            self._aside_bytes += len(frame) - len(asides.pending)
            asides.frames.append(frame)
            asides.pending.clear()

    def _compress(self) -> None:
        if not self._segments:
            return
        segment = self._segments[-1]
        self._compress_asides(segment)
        if not segment.pending:
            return
        # A copy: what the compressor returns keeps all the room that it might have needed, ten times as much.
        frame = bytes(memoryview(self._compressor.compress(bytes(segment.pending))))
        self._count(segment, len(frame) - len(segment.pending))
        segment.frames.append(frame)
        segment.pending.clear()

    def _count(self, segment: Segment, grown: int) -> None:
        segment.bytes += grown
        self._bytes += grown

    def status(self) -> RecorderStatus:
        detail = self._query.detail
        return RecorderStatus(
            from_at=self._segments[0].from_at if self._segments else None,
            until_at=self._segments[-1].until_at if self._segments else None,
            bytes=self._bytes + self._aside_bytes,
            max_bytes=self._max_bytes,
            hz=self._query.hz,
            detail=[part for part in ("roster", "blocks", "steps") if getattr(detail, part)],
        )

    def recording(
        self, from_at: float | None, to_at: float | None, *, messages: bool = True
    ) -> Generator[bytes]:
        """Zstandard frames: a header line, then every segment that has anything of that span, whole, as it is
        when this is begun. Not a copy: what is dropped meanwhile stays until it was sent. Then the timelines
        of requests that lived in that span, those only without ``messages``."""
        self._compress()
        chosen = [
            list(segment.frames)
            for segment in self._segments
            if messages
            and (to_at is None or segment.from_at <= to_at)
            and (from_at is None or segment.until_at >= from_at)
        ]
        asides = [
            list(segment.asides.frames)
            for segment in self._segments
            if (to_at is None or segment.from_at <= to_at + LATER_S)
            and (from_at is None or segment.until_at >= from_at)
        ]
        header = {
            "recording": 1,
            "protocol_version": PROTOCOL_VERSION,
            "epoch": self._source.fleet.epoch,
            "made_at": self._wall(),
            "simulated": self._source.fleet.is_simulated,
        }
        yield self._compressor.compress(msgspec.json.encode(header) + b"\n")
        for frames in chosen:
            yield from frames
        for frames in asides:
            yield from frames
        live = self._source.fleet.timelines.of_live(MOST_LIVE)
        if lines := b"".join(self._timeline(request, log) for request, log in live):
            yield self._compressor.compress(lines)
