"""What was told, kept in memory: segments of messages, each beginning with a whole snapshot, compressed.

Any moment is had from one segment, so what a seek costs is bounded by a segment's size. When there is too
much, the oldest segment goes. One thread writes, any thread reads.
"""

import copy
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import zstandard
from infer_engine.protocol import Event

from infer_console.diagnosis.judge import Judge
from infer_console.past.kept import Kept
from infer_console.past.marks import Mark, Marks
from infer_console.past.packed import pack_events, pack_judge, small, unpack_events, unpack_judge
from infer_console.state.feed import MAX_EVENTS
from infer_console.state.series import INTERVAL_S, SAMPLES, SeriesSample

DEFAULT_BYTES = 24 * 1024 * 1024
#: A segment is that long, or holds that many bytes of messages, whichever comes first.
SEGMENT_S = 30.0
SEGMENT_BYTES = 1024 * 1024
#: One whose snapshot is large may hold so many times that in changes: snapshots must not be all there is.
TIMES_SNAPSHOT = 2
#: Compressed at once: four times the usual 128 KiB takes a fifth less, and more is more to read for a moment.
FRAME_BYTES = 512 * 1024
#: About what an event and a sample of one thing take in memory, for the bound.
EVENT_BYTES = 400
SAMPLE_BYTES = 250
#: About what a mark takes, and a segment besides what is counted.
MARK_BYTES = 300
SEGMENT_OWN_BYTES = 1_500
#: About what the diagnosis remembers of each replica.
JUDGE_BYTES = 12_000
#: Of more replicas only the fleet's samples are kept.
MAX_SAMPLED = 64
#: The key of the fleet among the samples; no replica has it.
FLEET = ""

Samples = Mapping[str, SeriesSample]


@dataclass(slots=True)
class Segment:
    """``from_at`` and ``until_at`` are the server's clock. ``judge`` is the diagnosis at its beginning, whose
    clock shows ``judge_offset_s`` less."""

    from_at: float
    until_at: float
    #: None once the segment is over: ``packed_judge`` has it then.
    judge: Judge | None
    judge_offset_s: float
    #: False where there are very many replicas: then ``judge`` knows nothing.
    judge_is_kept: bool = True
    packed_judge: bytes = b""
    packed_events: bytes = b""
    frames: list[bytes] = field(default_factory=list[bytes])
    pending: bytearray = field(default_factory=bytearray)
    #: Uncompressed, of all messages and of the snapshot alone.
    raw_bytes: int = 0
    snapshot_bytes: int = 0
    messages: int = 0
    #: In memory: of all, and of ``judge`` alone.
    bytes: int = 0
    judge_bytes: int = 0
    #: Of a segment that is over none: ``packed_events`` has them then.
    events: list[tuple[float, Event]] = field(default_factory=list[tuple[float, Event]])
    samples: list[tuple[float, Samples]] = field(default_factory=list[tuple[float, Samples]])

    def judge_at_beginning(self) -> Judge:
        """A copy: who has it may go on with it."""
        judge, packed = self.judge, self.packed_judge
        return copy.deepcopy(judge) if judge is not None else unpack_judge(packed)

    def told(self) -> list[tuple[float, Event]]:
        """The events, oldest first."""
        return unpack_events(self.packed_events) if self.packed_events else self.events

    @property
    def is_full(self) -> bool:
        limit = max(SEGMENT_BYTES, (1 + TIMES_SNAPSHOT) * self.snapshot_bytes)
        return self.until_at - self.from_at >= SEGMENT_S or self.raw_bytes >= limit


@dataclass(frozen=True, slots=True)
class Stretch:
    """A segment as it was when somebody began to read it."""

    segment: Segment
    frames: tuple[bytes, ...]
    pending: bytes
    messages: int

    def lines(self) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor()
        for frame in self.frames:
            yield from decompressor.decompress(frame).splitlines()
        yield from self.pending.splitlines()


class Tape:
    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.marks = Marks()
        self.kept = Kept()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._bytes = 0
        #: What the histories had before the first segment.
        self._before: deque[tuple[float, Samples]] = deque(maxlen=SAMPLES)
        self._events_before: deque[tuple[float, Event]] = deque(maxlen=MAX_EVENTS)
        #: Segments that had to go.
        self.dropped = 0

    # --- writing

    def begin(self, segment: Segment) -> None:
        with self._lock:
            if self._segments:
                self._close(self._segments[-1])
            segment.bytes += SEGMENT_OWN_BYTES
            self._segments.append(segment)
            self._bytes += segment.bytes
            while self._bytes > self._max_bytes and len(self._segments) > 1:
                oldest = self._segments.pop(0)
                self._bytes -= oldest.bytes
                self._before.extend(oldest.samples)
                self._events_before.extend(oldest.told())
                self.dropped += 1

    def add(self, line: bytes, at: float, *, snapshot: bool = False) -> None:
        with self._lock:
            segment = self._segments[-1]
            segment.pending += line
            segment.pending += b"\n"
            segment.messages += 1
            segment.raw_bytes += len(line) + 1
            if snapshot:
                segment.snapshot_bytes += len(line) + 1
            segment.until_at = max(segment.until_at, at)
            self._count(segment, len(line) + 1)
            if len(segment.pending) >= FRAME_BYTES:
                self._compress(segment)

    def event(self, at: float, event: Event) -> None:
        with self._lock:
            self._segments[-1].events.append((at, event))
            self._count(self._segments[-1], EVENT_BYTES)

    def sample(self, at: float, samples: Samples) -> None:
        with self._lock:
            if not self._segments:
                self._before.append((at, samples))
                return
            self._segments[-1].samples.append((at, samples))
            self._count(self._segments[-1], SAMPLE_BYTES * len(samples))

    def prelude(self, samples: list[tuple[float, Samples]]) -> None:
        """What the histories know of the time before the first segment."""
        with self._lock:
            self._before.clear()
            self._before.extend(samples)

    def finish(self) -> None:
        """Nothing is written any more: the last segment is over, too."""
        with self._lock:
            if self._segments:
                self._close(self._segments[-1])

    @property
    def last(self) -> Segment | None:
        """The writer's own: the segment that is being written."""
        return self._segments[-1] if self._segments else None

    def _compress(self, segment: Segment) -> None:
        if segment.pending:
            frame = small(segment.pending)
            self._count(segment, len(frame) - len(segment.pending))
            segment.frames.append(frame)
            segment.pending.clear()

    def _close(self, segment: Segment) -> None:
        """It is over: all but its samples becomes bytes."""
        self._compress(segment)
        if segment.events:
            segment.packed_events = pack_events(segment.events)
            self._count(segment, len(segment.packed_events) - EVENT_BYTES * len(segment.events))
            segment.events = []
        if segment.judge is not None:
            segment.packed_judge = pack_judge(segment.judge)
            self._count(segment, len(segment.packed_judge) - segment.judge_bytes)
            segment.judge, segment.judge_bytes = None, 0

    def _count(self, segment: Segment, grown: int) -> None:
        segment.bytes += grown
        self._bytes += grown

    # --- reading

    @property
    def bytes(self) -> int:
        """With the marks, what is beside the messages, and what is kept of the time before the first segment:
        those are bounded by themselves."""
        samples = len(self._before) * SAMPLE_BYTES * (len(self._before[-1]) if self._before else 0)
        events = len(self._events_before) * EVENT_BYTES
        return self._bytes + samples + events + self.marks.count * MARK_BYTES + self.kept.held_bytes

    def span(self) -> tuple[float, float] | None:
        """The moments that can be shown; None where there are none."""
        with self._lock:
            return (self._segments[0].from_at, self._segments[-1].until_at) if self._segments else None

    def covers(self, at: float, tolerance_s: float = 0.0) -> bool:
        span = self.span()
        return span is not None and span[0] <= at <= span[1] + tolerance_s

    def all_marks(self) -> tuple[Mark, ...]:
        return self.marks.all()

    def stretch(self, at: float) -> Stretch | None:
        """The segment that a moment is in: the last that began before it. None before the first."""
        with self._lock:
            index = bisect_right(self._segments, at, key=lambda segment: segment.from_at) - 1
            return self._read(index) if index >= 0 else None

    def stretches(self, from_at: float, to_at: float) -> Iterator[Stretch]:
        """All that have anything of that time, in order."""
        with self._lock:
            chosen = [
                self._read(index)
                for index, segment in enumerate(self._segments)
                if segment.from_at <= to_at and segment.until_at >= from_at
            ]
        yield from chosen

    def _read(self, index: int) -> Stretch:
        segment = self._segments[index]
        return Stretch(segment, tuple(segment.frames), bytes(segment.pending), segment.messages)

    def events_until(self, at: float) -> tuple[Event, ...]:
        """The newest that were told by then, oldest first, at most ``MAX_EVENTS``."""
        found: deque[Event] = deque(maxlen=MAX_EVENTS)
        with self._lock:
            index = bisect_right(self._segments, at, key=lambda segment: segment.from_at) - 1
            for segment in reversed(self._segments[: index + 1]):
                events = segment.told()
                end = bisect_right(events, at, key=lambda told: told[0])
                for _, event in reversed(events[:end]):
                    if len(found) == MAX_EVENTS:
                        return tuple(found)
                    found.appendleft(event)
            for _, event in reversed(self._events_before):
                if len(found) == MAX_EVENTS:
                    break
                found.appendleft(event)
        return tuple(found)

    def sampled_at(self, at: float) -> float | None:
        """When the last sample before a moment was taken; None where there is none in the segments."""
        with self._lock:
            for segment in reversed(self._segments):
                end = bisect_right(segment.samples, at, key=lambda taken: taken[0])
                if end:
                    return segment.samples[end - 1][0]
        return None

    def samples_until(self, at: float) -> list[Samples]:
        """Those of the half hour before a moment, oldest first."""
        found: list[Samples] = []
        since_at = at - SAMPLES * INTERVAL_S
        with self._lock:
            for segment in reversed(self._segments):
                if segment.from_at > at:
                    continue
                end = bisect_right(segment.samples, at, key=lambda taken: taken[0])
                found += (values for _, values in reversed(segment.samples[:end]))
                if len(found) >= SAMPLES or segment.from_at < since_at:
                    break
            else:
                found += (values for taken_at, values in reversed(self._before) if taken_at <= at)
        found = found[:SAMPLES]
        found.reverse()
        return found
