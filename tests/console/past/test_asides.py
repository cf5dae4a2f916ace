"""Timelines and audit in a recording: there at each moment as far as they were then, without names where it
is redacted, and no hindrance to who does not know them."""

import io
from pathlib import Path

import msgspec
import pytest
from infer_console.past.cut import audit_until, timeline_until
from infer_console.past.exporting import Exporting
from infer_console.past.kept import LINE_BYTES, Kept
from infer_console.past.replayed import ReplayedRecording
from infer_console.past.timeline import Timeline as Past
from infer_console.recording import Header, RecordingError, RecordingReader, RecordingWriter
from infer_console.state.audit import read_audit
from infer_console.state.picture import TimelinePicture
from infer_console.state.series import SAMPLES, SeriesSet
from infer_engine.audit_chain import GENESIS, seal
from infer_engine.protocol import (
    Aside,
    AuditAside,
    AuditPage,
    History,
    Timeline,
    TimelineAside,
    TimelineEntry,
    TtftSplit,
)
from support.held import held_bytes
from support.incident import messages, replayed

BEGAN = messages()[0][1].at
ENDED = messages()[-1][1].at


def timeline(request: str = "7f3a91", began_at: float = BEGAN + 5.0) -> Timeline:
    told = (("arrived", 0.0), ("tokenized", 0.1), ("queued", 0.1), ("admitted", 4.0), ("first_token", 6.0))
    entries = [TimelineEntry(kind=kind, at_s=at_s) for kind, at_s in (*told, ("first_byte", 6.1))]
    entries.append(TimelineEntry(kind="finished", at_s=9.0, reason="stop"))
    split = TtftSplit(gateway=0.05, tokenize=0.05, queue=3.9, prefill=2.0, send=0.1, total=6.1)
    return Timeline(request=request, began_at=began_at, entries=entries, ttft_split_s=split)


def records() -> list[dict[str, object]]:
    """A chain of three: of a replica, a request and a tenant."""
    chain: list[dict[str, object]] = []
    previous = GENESIS
    targets = (("replica", "r0"), ("request", "7f3a91"), ("tenant", "acme"))
    for number, (kind, target) in enumerate(targets, 1):
        told = {
            "verb": "drain",
            "ts": BEGAN + 10.0 * number,
            "actor": {"subject": "kim", "role": "operator", "source_ip": "10.1.2.3", "token_id": "t-kim"},
            "target": {"kind": kind, "id": target},
            "params": {"where": "tenant=acme"},
            "reason": "7f3a91 of acme is slow",
            "stage": "completed",
            "outcome": {"status": 200, "code": None},
        }
        chain.append(seal(told, number, previous))
        previous = str(chain[-1]["sha256"])
    return chain


def asides() -> list[Aside]:
    return [TimelineAside(timeline=timeline()), *(AuditAside(record=record) for record in records())]


def past() -> Past:
    found = replayed()
    for aside in asides():
        found.own.kept.add(aside)
    return found


def exported(tmp_path: Path, *, redact: bool, to_at: float = ENDED + 60.0) -> Path:
    path = tmp_path / "part.icr"
    Exporting(timeline=past(), from_at=BEGAN, to_at=to_at, path=path, redact=redact).run(None)
    return path


def replay(path: Path) -> ReplayedRecording:
    found = ReplayedRecording(path)
    found.start()
    assert found.done.wait(60)
    assert found.trouble == ""
    return found


def test_a_recording_brings_timelines_and_audit_along(tmp_path: Path) -> None:
    again = replay(exported(tmp_path, redact=False))
    assert again.timeline.of_request("7f3a91") == timeline()
    assert again.timeline.of_request("7f3a92") is None
    whole = again.timeline.audit(ENDED + 60.0)
    assert [entry.number for entry in whole.entries] == [3, 2, 1]
    assert (whole.broken, whole.redacted) == (None, False)
    assert [entry.number for entry in again.timeline.audit(BEGAN + 20.0).entries] == [2, 1]
    again.stop()


def test_what_is_redacted_has_no_name_in_it_and_says_that_its_chain_cannot_be_checked(tmp_path: Path) -> None:
    path = exported(tmp_path, redact=True)
    found: list[Aside] = []
    with path.open("rb") as file:
        for _ in RecordingReader(file, found.append).messages():
            pass
    text = msgspec.json.encode(found).decode()
    for name in ("7f3a91", "acme", "10.1.2.3", "t-kim", "where"):
        assert name not in text
    assert "kim" in text
    again = replay(path)
    told = next(aside.timeline for aside in found if isinstance(aside, TimelineAside))
    audit = again.timeline.audit(ENDED + 60.0)
    assert audit.redacted
    assert audit.broken is None
    assert [entry.target for entry in audit.entries if entry.number == 2] == [told.request]
    again.stop()


def test_only_what_happened_in_that_time_is_exported(tmp_path: Path) -> None:
    again = replay(exported(tmp_path, redact=False, to_at=BEGAN + 4.0))
    assert again.timeline.of_request("7f3a91") is None
    audit = again.timeline.audit(ENDED)
    assert audit.entries == ()
    assert "no audit" in audit.trouble
    again.stop()


def test_a_reader_who_does_not_want_them_passes_over_them(tmp_path: Path) -> None:
    with exported(tmp_path, redact=False).open("rb") as file:
        reader = RecordingReader(file)
        assert len(list(reader.envelopes())) > 0
        assert reader.skipped == 0


def test_what_no_console_knows_is_counted() -> None:
    file = io.BytesIO()
    with RecordingWriter(file, Header()) as writer:
        writer.aside(b'{"aside":"weather","rain":true}')
    file.seek(0)
    reader = RecordingReader(file)
    assert list(reader.envelopes()) == []
    assert reader.skipped == 1


@pytest.mark.parametrize(
    ("passed_s", "entries", "queue", "send"),
    [
        (0.05, 1, None, None),
        (5.0, 4, None, None),
        (6.05, 5, 3.9, None),
        (6.2, 6, 3.9, 0.1),
        (99.0, 7, 3.9, 0.1),
    ],
)
def test_a_timeline_is_cut_at_the_moment(
    passed_s: float, entries: int, queue: float | None, send: float | None
) -> None:
    told = timeline_until(TimelinePicture("7f3a91", timeline()), BEGAN + 5.0 + passed_s, 1.0)
    assert told.timeline is not None
    assert len(told.timeline.entries) == entries
    assert (told.timeline.ttft_split_s.queue, told.timeline.ttft_split_s.send) == (queue, send)
    # Where time is simulated twice as fast, half of the wall's is enough.
    faster = timeline_until(TimelinePicture("7f3a91", timeline()), BEGAN + 5.0 + passed_s / 2, 2.0)
    assert faster.timeline == told.timeline


def test_before_it_arrived_there_is_nothing_of_it() -> None:
    told = timeline_until(TimelinePicture("7f3a91", timeline()), BEGAN, 1.0)
    assert told.timeline is None
    assert "not arrived" in told.message


def test_the_audit_is_cut_at_the_moment() -> None:
    audit = read_audit(AuditPage(records=records()))
    assert [entry.number for entry in audit_until(audit, BEGAN + 20.0).entries] == [2, 1]
    late = read_audit(AuditPage(records=records()[1:]))
    assert "on their way" in audit_until(late, BEGAN + 5.0).trouble


def test_what_is_kept_is_bounded() -> None:
    line = msgspec.json.encode(TimelineAside(timeline=timeline("q0000")))
    kept = Kept(3 * (len(line) + LINE_BYTES))
    for number in range(10):
        kept.add(TimelineAside(timeline=timeline(f"q{number:04}")))
    assert kept.dropped == 7
    assert kept.timeline("q0006") is None
    assert kept.timeline("q0009") is not None


def test_what_is_kept_counts_what_it_takes() -> None:
    kept = Kept()
    for number in range(100):
        kept.add(TimelineAside(timeline=timeline(f"q{number:04}")))
    kept.add(TimelineAside(timeline=timeline("q0000")))  # in the place of the one before
    line = msgspec.json.encode(TimelineAside(timeline=timeline("q0000")))
    assert kept.held_bytes == 100 * (len(line) + LINE_BYTES)
    held = held_bytes(kept)
    assert held < 1.1 * kept.held_bytes
    assert kept.held_bytes < 1.5 * held


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"seq":"x"@@@', "is damaged"),
        (b'{"aside":"audit","record":' + b'{"a":' * 100_000, "is damaged"),
        (messages()[0][0].replace(b'"at":', b'"at":1e300,"at_was":', 1), "of second 1e"),
    ],
    ids=["no json", "deep", "no time"],
)
def test_lines_that_are_none_are_damage(line: bytes, why: str) -> None:
    file = io.BytesIO()
    with RecordingWriter(file, Header()) as writer:
        writer.write(line)
    reader = RecordingReader(io.BytesIO(file.getvalue()))
    with pytest.raises(RecordingError, match=why):
        list(reader.messages())


def test_records_with_numbers_that_no_audit_has_are_left_out() -> None:
    kept = Kept()
    for record in (f'{{"number":{HUGE},"ts":1}}', f'{{"number":1,"ts":{HUGE}}}', '{"number":2,"ts":5}'):
        kept.add(msgspec.json.decode(f'{{"aside":"audit","record":{record}}}', type=Aside))
    assert [entry.number for entry in kept.audit(ENDED).entries] == [2]


@pytest.mark.parametrize(("until_at", "step_s"), [(1e300, 1.0), (1.0, 0.0)])
def test_a_history_of_no_time_is_damage(until_at: float, step_s: float) -> None:
    file = io.BytesIO()
    history = History(until_at=until_at, step_s=step_s, sample_s=1.0, fleet={})
    with RecordingWriter(file, Header(history=history)):
        pass
    with pytest.raises(RecordingError, match="of no time"):
        RecordingReader(io.BytesIO(file.getvalue()))


def test_a_step_longer_than_all_that_is_kept_takes_no_more_memory() -> None:
    series = SeriesSet()
    series.look_back({"kv": [0.25, 0.5]}, 1e300)
    assert [sample.values[0] for sample in series.backwards()] == [0.5] * SAMPLES
