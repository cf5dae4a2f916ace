"""What an exported file claims of the past: all that is known of it, and nothing that is not."""

import io
from pathlib import Path

import msgspec
from infer_console.past.exporting import Exporting
from infer_console.past.load import Loader, load
from infer_console.past.tape import Tape
from infer_console.past.timeline import Timeline
from infer_console.recording import Header, RecordingWriter, open_recording
from infer_engine.protocol import Envelope, FleetDelta
from support.incident import messages, moved, replayed

#: The server is started anew so long after the first one's beginning.
LATER_S = 600.0


def renamed(message: tuple[bytes, Envelope]) -> tuple[bytes, Envelope]:
    """The same of another server: later, with an epoch and a fleet of its own."""
    _, told = moved(message, LATER_S)
    told = msgspec.structs.replace(told, epoch="another")
    if isinstance(told.delta, FleetDelta):
        fleet = msgspec.structs.replace(told.delta.fleet, name="anew")
        told = msgspec.structs.replace(told, delta=msgspec.structs.replace(told.delta, fleet=fleet))
    return msgspec.json.encode(told), told


def recorded(lines: list[tuple[bytes, Envelope]]) -> bytes:
    file = io.BytesIO()
    with RecordingWriter(file, Header(epoch="another")) as writer:
        for line, _ in lines:
            writer.write(line)
    return file.getvalue()


def fleet_at(path: Path, at: float) -> str | None:
    tape = Tape()
    file, reader = open_recording(path)
    with file:
        load(reader.messages(), Loader(tape, "again"))
    picture = Timeline("again", tape).picture(at)
    return None if picture is None or picture.fleet is None else picture.fleet.name


def test_a_restarted_servers_recorder_does_not_hide_what_was_before_it(tmp_path: Path) -> None:
    timeline, path = replayed(), tmp_path / "both.icr"
    first = messages()
    anew = [renamed(each) for each in first]
    begins, ends = first[0][1].at, anew[-1][1].at
    done = Exporting(timeline=timeline, from_at=begins, to_at=ends, path=path).run(recorded(anew))
    assert done.from_at == begins
    was = fleet_at(path, first[-1][1].at)
    assert was is not None
    assert was != "anew"
    assert fleet_at(path, ends) == "anew"


def test_what_the_server_did_not_send_to_the_end_goes_on_with_what_was_told_here(tmp_path: Path) -> None:
    timeline, path = replayed(), tmp_path / "end.icr"
    told = messages()
    begins, ends = told[0][1].at, told[-1][1].at
    sent = [each for each in told if each[1].at < (begins + ends) / 2]
    done = Exporting(timeline=timeline, from_at=begins, to_at=ends, path=path).run(recorded(sent))
    assert done.to_at == ends


def test_a_file_does_not_begin_before_anything_was_known(tmp_path: Path) -> None:
    path = tmp_path / "late.icr"
    anew = [renamed(each) for each in messages()]
    begins = anew[0][1].at
    nothing = Timeline("a console that came late")
    done = Exporting(timeline=nothing, from_at=begins - 500.0, to_at=anew[-1][1].at, path=path).run(
        recorded(anew)
    )
    assert done.from_at is not None
    assert done.from_at >= begins
    assert fleet_at(path, begins - 300.0) is None
    assert fleet_at(path, done.to_at or 0.0) == "anew"
