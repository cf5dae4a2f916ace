"""Recordings (``.icr``): Zstandard frames of JSON lines, a header and then the messages of a watch stream.

A message whose ``prev`` is 0 begins a chain: a snapshot follows, and whoever folds begins anew. A recording
whose end is missing is readable up to there. Beside the messages there may be *asides*: timelines of requests
and records of the audit, outside of the chain, so that a console that does not know them passes over them.
``zstd -dc FILE | jq`` shows it.
"""

from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import zstandard
from infer_engine.protocol import PROTOCOL_VERSION, Aside, Envelope, History

from infer_console.frames_end import ends_with_a_frame

FORMAT = 1
#: A longer line is damage, or somebody's attack.
MAX_LINE_BYTES = 8 * 1024 * 1024
#: Lines are compressed this many bytes at a time, or when ``flush`` is called.
FRAME_BYTES = 256 * 1024
READ_BYTES = 64 * 1024
#: Unix seconds, as late as clocks are shown: with later ones a float knows no seconds any more.
LATEST_AT = 1e11

_envelopes = msgspec.json.Decoder(Envelope)
_asides = msgspec.json.Decoder(Aside)


class RecordingError(Exception):
    """The file is no recording, or one that cannot be read; ``str()`` says so in one line."""


class RecordedMark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment that an operator marked."""

    at: float
    text: str = ""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    recording: int = FORMAT
    protocol_version: int = PROTOCOL_VERSION
    epoch: str = ""
    made_at: float | None = None
    simulated: bool = False
    #: Request ids and tenants are hashes.
    redacted: bool = False
    marks: list[RecordedMark] = []
    #: What was before the first message.
    history: History | None = None
    #: How many samples the histories had by then: a sparkline's cells keep their boundaries.
    taken: dict[str, int] = {}


class _Format(msgspec.Struct):
    """What a header of any format has, and no other object."""

    recording: int


class RecordingWriter:
    """Use as ``with``. Raises OSError of the file it writes to."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._pending = bytearray(msgspec.json.encode(header) + b"\n")
        self.messages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def aside(self, line: bytes) -> None:
        """One ``protocol.Aside`` as JSON on one line. ValueError as ``write``."""
        self.write(line)
        self.messages -= 1

    def write(self, message: str | bytes) -> None:
        """One ``protocol.Envelope`` as JSON on one line, as the watch stream has it. ValueError when it is
        longer than a reader would take or more than a line."""
        line = message.encode() if isinstance(message, str) else message
        if len(line) > MAX_LINE_BYTES or b"\n" in line:
            raise ValueError(f"a message of {len(line)} bytes cannot be one line of a recording")
        self._pending += line
        self._pending += b"\n"
        self.messages += 1
        if len(self._pending) >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """What was written so far is readable, whatever happens next."""
        if self._pending:
            self._file.write(self._compressor.compress(bytes(self._pending)))
            self._pending.clear()
        self._file.flush()


class RecordingReader:
    """``header``, then ``lines``; both raise RecordingError. ``is_truncated`` says after the last line that
    the file ends within one, or in damage; what is cut off between two frames cannot be told. ``aside`` is
    given every aside when its turn comes."""

    def __init__(self, file: BinaryIO, aside: Callable[[Aside], None] | None = None) -> None:
        self.aside = aside
        self.is_truncated = False
        #: Why: in what is there is something that was never written.
        self.is_damaged = False
        #: Messages of a newer server that were passed over.
        self.skipped = 0
        self._lines = self._split(file)
        first = next(self._lines, None)
        try:
            given = msgspec.json.decode(first or b"", type=_Format).recording
            if given > FORMAT:
                raise RecordingError(f"the recording's format is {given}, this console reads up to {FORMAT}")
            self.header = msgspec.json.decode(first or b"", type=Header)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RecordingError(
                "this is no recording: it does not begin with a recording's header"
            ) from error
        history = self.header.history
        if history is not None and not (0 <= history.until_at <= LATEST_AT and history.step_s > 0):
            raise RecordingError("the recording is damaged: its history is of no time")

    def envelopes(self) -> Generator[Envelope]:
        """Messages in order; those that this console does not understand are skipped and counted."""
        for _, envelope in self.messages():
            yield envelope

    def messages(self) -> Generator[tuple[bytes, Envelope]]:
        """As ``envelopes``, with each message's own line."""
        for line in self._lines:
            try:
                envelope = _envelopes.decode(line)
            except msgspec.ValidationError:
                self._pass_over(line)
                continue
            except (msgspec.DecodeError, RecursionError) as error:
                raise _damaged(error) from error
            if not 0 <= envelope.at <= LATEST_AT:
                raise _damaged(f"a message of second {envelope.at:g}")
            yield line, envelope

    def _pass_over(self, line: bytes) -> None:
        """No message that this console understands: an aside, or of a newer server."""
        try:
            aside = _asides.decode(line)
        except msgspec.ValidationError:
            self.skipped += 1
        except (msgspec.DecodeError, RecursionError) as error:  # behind what does not fit, no JSON at all
            raise _damaged(error) from error
        else:
            if self.aside is not None:
                self.aside(aside)

    def _split(self, file: BinaryIO) -> Generator[bytes]:
        rest = bytearray()
        for chunk in self._decompressed(file):
            rest += chunk
            *lines, tail = rest.split(b"\n")
            for line in lines:
                if len(line) > MAX_LINE_BYTES:
                    raise _too_long()
                yield bytes(line)
            rest = tail
            if len(rest) > MAX_LINE_BYTES:
                raise _too_long()
        if rest or not (self.is_truncated or ends_with_a_frame(file)):
            self.is_truncated = True  # half a line, or half a frame

    def _decompressed(self, file: BinaryIO) -> Generator[bytes]:
        """Bounded pieces: a small file may hold very much."""
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
            file, read_across_frames=True, read_size=READ_BYTES
        )
        began = False
        try:
            while chunk := reader.read(READ_BYTES):
                began = True
                yield chunk
        except zstandard.ZstdError as error:
            if not began:
                raise RecordingError(
                    "this is no recording: it is no Zstandard data, or damaged where it begins"
                ) from error
            self.is_truncated = self.is_damaged = True


def _damaged(error: Exception | str) -> RecordingError:
    return RecordingError(f"the recording is damaged: {error}")


def _too_long() -> RecordingError:
    return RecordingError(f"a line of the recording is longer than {MAX_LINE_BYTES} bytes")


def open_recording(path: Path) -> tuple[BinaryIO, RecordingReader]:
    """The caller closes the file. OSError when it cannot be opened; RecordingError."""
    file = path.open("rb")
    try:
        return file, RecordingReader(file)
    except BaseException:
        file.close()
        raise
