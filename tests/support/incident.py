"""The recorded incident: what tests replay, and the moments of it that they look at."""

from pathlib import Path

from infer_console.past.load import Loader, load
from infer_console.past.tape import Tape
from infer_console.past.timeline import Timeline
from infer_console.recording import open_recording
from infer_engine.protocol import Envelope

RECORDING = Path(__file__).parent.parent / "recordings" / "incident.icr"
#: Seconds from its beginning: what was wrong is seen, and what was done about it.
SHOWN_S = 30.0


def messages() -> list[tuple[bytes, Envelope]]:
    file, reader = open_recording(RECORDING)
    with file:
        return list(reader.messages())


def replayed(max_bytes: int | None = None) -> Timeline:
    """All of it, on a timeline."""
    tape = Tape(max_bytes) if max_bytes is not None else Tape()
    file, reader = open_recording(RECORDING)
    with file:
        loader = Loader(tape, RECORDING.name)
        loader.header(reader.header)
        load(reader.messages(), loader)
    return Timeline(RECORDING.name, tape)
