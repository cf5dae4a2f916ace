"""An export shows what happened and not whose it was."""

import io
import re
from pathlib import Path

import msgspec
from infer_console.past.export import Part, export
from infer_console.past.redact import Redactor
from infer_console.past.snapshot import snapshot_deltas, snapshot_lines
from infer_console.recording import Header, RecordingReader
from infer_console.state.fold import ConsoleState
from infer_engine.protocol import Envelope, Event, EventDelta, Operation, OperationDelta
from support import pictures
from support.folding import fold_all

TENANTS = ("acme", "globex", "initech", "umbrella", "soylent")


def told() -> list[Envelope]:
    picture = pictures.incident()
    lines = list(snapshot_lines(snapshot_deltas(picture), "e", 1, picture.at))
    envelopes = [msgspec.json.decode(line, type=Envelope) for line in lines]
    request = next(iter(picture.replicas["r2"].rows))
    event = Event(
        seq=9_000,
        at=picture.at,
        kind="reject",
        request="made-by-hand",
        tenant="acme",
        message=f"after {request} of acme, like 0123456789ab",
    )
    operation = Operation(
        id="op-9",
        kind="cancel",
        target=request,
        phase="running",
        started_at=picture.at,
        reason="acme asked",
        blocked_by=[request],
        params={"tenant": "acme", "where": "tenant=acme"},
    )
    more = (EventDelta(event=event), OperationDelta(operation=operation))
    for seq, delta in enumerate(more, 2):
        envelopes.append(Envelope(epoch="e", seq=seq, prev=seq - 1, at=picture.at, delta=delta))
    return envelopes


def written(redactor: Redactor | None) -> tuple[str, ConsoleState]:
    file = io.BytesIO()
    at = pictures.NOW
    export([Part(told(), at, at + 1)], file, Header(epoch="e"), redactor)
    file.seek(0)
    reader = RecordingReader(file)
    text, envelopes = [], []
    for line, envelope in reader.messages():
        text.append(line.decode())
        envelopes.append(envelope)
    state = ConsoleState("")
    fold_all(state, envelopes)
    return "\n".join(text), state


def test_no_name_is_left() -> None:
    plain, _ = written(None)
    redacted, _ = written(Redactor())
    names = {*TENANTS, "made-by-hand", "0123456789ab"}
    for replica in pictures.incident().replicas.values():
        names |= set(replica.rows)
    names = {name for name in names if re.search(rf"\b{re.escape(name)}\b", plain)}
    assert len(names) > 20
    for name in names:
        assert not re.search(rf"\b{re.escape(name)}\b", redacted), name
    assert '"client_id":"' not in redacted


def test_what_belongs_together_still_does() -> None:
    _, plain = written(None)
    _, redacted = written(Redactor())
    before, after = (state.picture(pictures.NOW, pictures.NOW) for state in (plain, redacted))
    assert after.totals is not None
    assert before.totals is not None
    assert after.totals.running == before.totals.running
    for name, replica in before.replicas.items():
        hidden = after.replicas[name]
        assert [replica.rows[each].kv_blocks for each in replica.order] == [
            hidden.rows[each].kv_blocks for each in hidden.order
        ]
        if replica.blocks is not None:
            assert hidden.blocks is not None
            owners = set(hidden.blocks.owners)
            assert owners & set(hidden.rows) or not owners
    cancelled = after.operations[-1]
    assert cancelled.target == cancelled.blocked_by[0]
    assert cancelled.target in after.replicas["r2"].rows


def test_two_files_hash_differently() -> None:
    assert Redactor().tenant("acme") != Redactor().tenant("acme")
    same = Redactor()
    assert same.tenant("acme") == same.tenant("acme")
    assert same.tenant("default") == "default"


def test_a_file_that_is_there_is_left_as_it_was(tmp_path: Path) -> None:
    from infer_console.past.exporting import Exporting
    from support.incident import replayed

    timeline = replayed()
    path = tmp_path / "there"
    path.write_text("mine")
    span = timeline.span()
    assert span is not None
    try:
        Exporting(timeline=timeline, from_at=span[0], to_at=span[1], path=path).run(None)
    except FileExistsError:
        assert path.read_text() == "mine"
    else:
        raise AssertionError("it was written over")
