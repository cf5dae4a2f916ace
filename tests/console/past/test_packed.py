"""What a segment that is over has beside its messages: as bytes, and the same when it is asked for."""

from infer_console.diagnosis.judge import Judge
from infer_console.past.load import Loader, load
from infer_console.past.packed import pack_events, pack_judge, unpack_events, unpack_judge
from infer_console.past.tape import EVENT_BYTES, Tape
from infer_console.past.timeline import Timeline
from support import pictures
from support.held import held_bytes
from support.incident import messages, moved


def day(turns: int) -> Tape:
    """The incident over and over."""
    tape = Tape()
    loader = Loader(tape, "loop")
    told = messages()
    length_s = told[-1][1].at - told[0][1].at + 1.0
    for turn in range(turns):
        load((moved(each, turn * length_s) for each in told), loader)
    return tape


def test_events_come_back_as_they_were() -> None:
    events = [(event.at, event) for event in pictures.incident().events]
    assert events
    packed = pack_events(events)
    assert unpack_events(packed) == events
    assert len(packed) < len(events) * EVENT_BYTES
    assert unpack_events(pack_events([])) == []


def test_a_diagnosis_goes_on_where_it_was() -> None:
    judge, picture = Judge(), pictures.incident()
    judge.judged(picture, 100.0)
    packed = pack_judge(judge)
    wanted = judge.judged(picture, 160.0)
    assert unpack_judge(packed).judged(picture, 160.0) == wanted
    assert unpack_judge(packed).judged(picture, 160.0) == wanted  # one of its own for each
    assert Judge().judged(picture, 160.0) != wanted


def test_segments_that_are_over_hold_bytes_and_what_they_hold_is_counted() -> None:
    tape = day(4)
    *over, last = [stretch.segment for stretch in tape.stretches(0.0, float("inf"))]
    assert len(over) >= 3
    assert all(each.judge is None and not each.events and not each.pending for each in over)
    assert any(each.told() for each in over)
    assert last.judge is not None
    counted, held = tape.bytes, held_bytes(tape)
    assert held < 1.25 * counted
    assert counted < 2 * held


def test_a_piece_that_is_whole_has_no_segment_that_is_open() -> None:
    tape, timeline = day(2), Timeline("loop", Tape())
    span = tape.span()
    assert span is not None
    timeline.add_piece(tape)
    segments = [stretch.segment for stretch in tape.stretches(0.0, float("inf"))]
    assert all(each.judge is None and not each.events and not each.pending for each in segments)
    shown = timeline.picture(span[1])
    assert shown is not None
    assert shown.replicas
    assert shown.events == tape.events_until(span[1])
    counted, held = timeline.pieces_bytes, held_bytes(tape)
    assert held < 1.25 * counted
    assert counted < 2 * held
