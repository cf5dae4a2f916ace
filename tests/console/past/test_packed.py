"""What a segment that is over has beside its messages: as bytes, and the same when it is asked for."""

import gc
import sys
import types

from infer_console.diagnosis.judge import Judge
from infer_console.past.load import Loader, load
from infer_console.past.packed import pack_events, pack_judge, unpack_events, unpack_judge
from infer_console.past.tape import EVENT_BYTES, Tape
from support import pictures
from support.incident import messages, moved

#: Shared by all, and none of the tape's.
NOT_HELD = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def held_bytes(root: object) -> int:
    """Of everything that is reached from there."""
    seen, todo, total = set[int](), [root], 0
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, NOT_HELD):
            seen.add(id(each))
            total += sys.getsizeof(each)
            todo += gc.get_referents(each)
    return total


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
