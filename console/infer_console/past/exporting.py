"""One export under way: from which source, into which file."""

import concurrent.futures
import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from infer_engine.protocol import Aside, Envelope

from infer_console.past.export import MOST_ASIDE_BYTES, Exported, Part, export, header_for
from infer_console.past.files import whole_new
from infer_console.past.kept import Kept, audit_lines
from infer_console.past.redact import Redactor
from infer_console.past.timeline import PIECE_TOLERANCE_S, Timeline
from infer_console.recording import RecordingError, RecordingReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporting:
    timeline: Timeline
    from_at: float
    to_at: float
    path: Path
    redact: bool = True
    #: Told the moment of each message of the timeline that is read.
    reached: Callable[[float], None] | None = None
    #: The audit's records of that time, as far as this console may read them.
    records: Sequence[dict[str, Any]] = ()

    def run_into(self, future: "concurrent.futures.Future[Exported]", content: bytes | None) -> None:
        """Write the file and say so in ``future``; a file without anything in it does not stay."""
        try:
            done = self.run(content)
        except (OSError, RecordingError, ValueError) as error:
            future.set_exception(error)
        else:
            future.set_result(done)

    def run(self, content: bytes | None) -> Exported:
        """``content`` is a server's recording of that time, to which the timeline adds. Raises OSError,
        RecordingError."""
        with whole_new(self.path) as file:
            done = self._write(content, file)
        if done.messages == 0:
            self.path.unlink(missing_ok=True)
            raise RecordingError("nothing of that time is kept")
        return done

    def _write(self, content: bytes | None, file: BinaryIO) -> Exported:
        redactor = Redactor() if self.redact else None
        epoch, parts = "", [Part(self._own(self.from_at), self.from_at, self.to_at)]
        if content is not None:
            epoch, parts = RecordingReader(io.BytesIO(content)).header.epoch, self._joined(content)
        header = header_for(
            epoch=epoch,
            made_at=time.time(),
            picture=self.timeline.snapshot(self.from_at),
            from_at=self.from_at,
            sampled_at=self.timeline.sampled_at(self.from_at),
            marks=self.timeline.marks(),
            redactor=redactor,
        )
        return export(parts, file, header, redactor, self._asides(content))

    def _asides(self, content: bytes | None) -> Iterator[bytes]:
        """Each once: what was told last of a request has most of it."""
        kept = Kept(MOST_ASIDE_BYTES)
        decode = msgspec.json.Decoder(Aside).decode
        for line in (*self.timeline.asides(self.from_at, self.to_at), *audit_lines(self.records)):
            kept.add(decode(line))
        if content is not None:
            reader = RecordingReader(io.BytesIO(content), kept.add)
            for _ in reader.messages():
                pass
        return kept.within(self.from_at, self.to_at)

    def _own(self, from_at: float) -> Iterable[Envelope]:
        for envelope in self.timeline.envelopes(from_at, self.to_at):
            if self.reached is not None:
                self.reached(envelope.at)
            yield envelope

    def _joined(self, content: bytes) -> list[Part]:
        """What the recording has, and before and after it what the timeline has: a server that was started
        anew has nothing of the one before it, and of a long time not all is sent."""
        reader = RecordingReader(io.BytesIO(content))
        first_at: float | None = None
        last_at = self.from_at
        for envelope in reader.envelopes():
            first_at = envelope.at if first_at is None else first_at
            last_at = max(last_at, envelope.at)
        if first_at is None:
            return [Part(self._own(self.from_at), self.from_at, self.to_at)]
        span = self.timeline.own.span() or (first_at, last_at)
        parts: list[Part] = []
        if self.from_at < first_at and span[0] < first_at:
            parts.append(Part(self._own(self.from_at), self.from_at, first_at))
        parts.append(Part(RecordingReader(io.BytesIO(content)).envelopes(), self.from_at, self.to_at))
        if min(span[1], self.to_at) > last_at + PIECE_TOLERANCE_S:
            parts.append(Part(self._own(last_at), last_at, self.to_at))
        return parts
