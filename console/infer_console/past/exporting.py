"""One export under way: from which source, into which file."""

import concurrent.futures
import io
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from infer_engine.protocol import Envelope

from infer_console.past.export import Exported, export, header_for
from infer_console.past.redact import Redactor
from infer_console.past.timeline import Timeline
from infer_console.recording import RecordingError, RecordingReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporting:
    timeline: Timeline
    from_at: float
    to_at: float
    path: Path
    redact: bool = True

    def run_into(self, future: "concurrent.futures.Future[Exported]", content: bytes | None) -> None:
        """Write the file and say so in ``future``; a file without anything in it does not stay."""
        try:
            done = self.run(content)
        except (OSError, RecordingError, ValueError) as error:
            future.set_exception(error)
        else:
            future.set_result(done)

    def run(self, content: bytes | None) -> Exported:
        """``content`` is a recording of that time, None for what the timeline has. Raises OSError,
        RecordingError."""
        with self.path.open("xb") as file:
            try:
                done = self._write(content, file)
            except BaseException:
                self.path.unlink(missing_ok=True)
                raise
        if done.messages == 0:
            self.path.unlink(missing_ok=True)
            raise RecordingError("nothing of that time is kept")
        return done

    def _write(self, content: bytes | None, file: BinaryIO) -> Exported:
        redactor = Redactor() if self.redact else None
        envelopes: Iterable[Envelope]
        if content is not None:
            reader = RecordingReader(io.BytesIO(content))
            epoch, envelopes = reader.header.epoch, reader.envelopes()
        else:
            epoch, envelopes = "", self.timeline.envelopes(self.from_at, self.to_at)
        header = header_for(
            epoch=epoch,
            made_at=time.time(),
            picture=self.timeline.snapshot(self.from_at),
            from_at=self.from_at,
            sampled_at=self.timeline.sampled_at(self.from_at),
            marks=self.timeline.marks(),
            redactor=redactor,
        )
        return export(envelopes, self.from_at, self.to_at, file, header, redactor)
