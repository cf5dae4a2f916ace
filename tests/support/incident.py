"""The recorded incident: what tests replay, and the moments of it that they look at."""

from pathlib import Path

import msgspec
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


def replayed(later_s: float = 0.0) -> Timeline:
    """All of it, on a timeline, as if it had been so much later."""
    tape = Tape()
    file, reader = open_recording(RECORDING)
    with file:
        loader = Loader(tape, RECORDING.name)
        if not later_s:
            loader.header(reader.header)
        load((moved(each, later_s) for each in reader.messages()), loader)
    return Timeline(RECORDING.name, tape)


def moved(message: tuple[bytes, Envelope], later_s: float) -> tuple[bytes, Envelope]:
    if not later_s:
        return message
    later = msgspec.structs.replace(message[1], at=message[1].at + later_s)
    return msgspec.json.encode(later), later
