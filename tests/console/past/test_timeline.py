"""Any moment of a tape: what a seek costs, what it gives, and what is kept."""

import copy
import dataclasses
import tracemalloc
from random import Random

import pytest
from infer_console.diagnosis.judge import Judge
from infer_console.past import tape as tape_module
from infer_console.past.load import Loader, load
from infer_console.past.moment import decoded
from infer_console.past.snapshot import snapshot_deltas, snapshot_lines
from infer_console.past.tape import SEGMENT_BYTES, SEGMENT_S, Segment, Tape
from infer_console.past.timeline import MOST_MOMENTS, Timeline, lacks_detail
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import NO_OWNER, BlockMap, Picture
from support import pictures
from support.folding import fold_all
from support.incident import messages, moved, replayed


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return replayed()


def span(timeline: Timeline) -> tuple[float, float]:
    found = timeline.span()
    assert found is not None
    return found


def seen(timeline: Timeline, at: float) -> Picture:
    picture = timeline.picture(at)
    assert picture is not None
    return picture


def known(picture: Picture) -> tuple[object, ...]:
    """All that messages tell, block maps by what they show."""
    replicas = {
        name: (each.status, each.rows, each.order, each.step, each.blocks and each.blocks.kinds)
        for name, each in picture.replicas.items()
    }
    return picture.fleet, picture.totals, replicas, picture.held, picture.operations, picture.events


def named(blocks: BlockMap) -> list[str | None]:
    """Each block's owner by name."""
    return [None if owner == NO_OWNER else blocks.owners[owner] for owner in blocks.owner]


def test_messages_take_the_memory_that_is_counted_for_them() -> None:
    lines = [line for line, _ in messages()]
    tape = Tape()
    tape.begin(Segment(from_at=0.0, until_at=0.0, judge=Judge(), judge_offset_s=0.0))
    tracemalloc.start()
    try:
        for at, line in enumerate(lines * 4):
            tape.add(line, float(at))
        here = tracemalloc.Filter(True, tape_module.__file__)
        kept = tracemalloc.take_snapshot().filter_traces([here]).statistics("filename")
    finally:
        tracemalloc.stop()
    assert 0 < kept[0].size < 2 * tape.bytes


def test_of_many_pieces_few_stand_ready(timeline: Timeline) -> None:
    """Each of them is a whole state."""
    many = Timeline("", Tape())
    at = span(timeline)[0] + 5.0
    for _ in range(MOST_MOMENTS + 2):
        many.add_piece(copy.copy(timeline.own))
    assert all(many._seek(piece, at) is not None for piece in many._pieces)
    assert len(many._moments) == MOST_MOMENTS


def test_a_moment_is_what_folding_everything_until_then_gives(timeline: Timeline) -> None:
    from_at, to_at = span(timeline)
    told = [envelope for _, envelope in messages()]
    for part in (0.1, 0.5, 0.79, 0.95, 1.0):
        at = from_at + part * (to_at - from_at)
        state = ConsoleState("")
        assert fold_all(state, told, at) > 0
        assert known(seen(timeline, at)) == known(state.picture(at, at))


def test_a_seek_folds_one_segment_at_most_and_a_step_only_what_lies_between(timeline: Timeline) -> None:
    from_at, to_at = span(timeline)
    stretches = list(timeline.own.stretches(from_at, to_at))
    assert len(stretches) >= 2
    most = max(stretch.messages for stretch in stretches)
    assert all(each.segment.until_at - each.segment.from_at <= SEGMENT_S + 1 for each in stretches)
    assert all(each.segment.raw_bytes <= 2 * SEGMENT_BYTES for each in stretches)
    random = Random(1)
    for _ in range(40):
        timeline.picture(random.uniform(from_at, to_at))
        assert timeline.last_folded <= most
    at = to_at - 3.0
    timeline.picture(at)
    timeline.picture(at)
    assert timeline.last_folded == 0
    between = sum(at < envelope.at <= at + 1.0 for _, envelope in messages())
    timeline.picture(at + 1.0)
    assert timeline.last_folded == between


def test_seeking_to_and_fro_does_not_change_what_is_seen(timeline: Timeline) -> None:
    from_at, to_at = span(timeline)
    moments = [from_at + part * (to_at - from_at) for part in (0.9, 0.2, 0.6)]
    first = [seen(timeline, at) for at in moments]
    again = [seen(timeline, at) for at in reversed(moments)]
    assert first == list(reversed(again))


def test_histories_end_at_the_moment(timeline: Timeline) -> None:
    from_at, to_at = span(timeline)
    early, late = seen(timeline, to_at - 20.0), seen(timeline, to_at)
    before, after = early.history["running"], late.history["running"]
    assert after.taken == before.taken + 10
    assert after.values[: len(before.values)] == before.values
    assert after.values[-10:] != (None,) * 10
    assert early.replicas["r0"].history["kv"].values[-1] is not None
    assert seen(timeline, from_at + 1).history["running"].taken > 0  # from the recording's head


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    tape = Tape(120_000)
    loader = Loader(tape, "loop")
    told = messages()
    length_s = told[-1][1].at - told[0][1].at + 1.0
    for turn in range(6):
        later = turn * length_s
        load((moved(each, later) for each in told), loader)
        assert tape.bytes <= 120_000 + 2 * SEGMENT_BYTES
    assert tape.dropped > 0
    kept = Timeline("loop", tape)
    first, last = span(kept)
    assert first > told[0][1].at + length_s
    assert kept.picture(told[0][1].at) is None
    assert seen(kept, first).totals is not None
    assert len(seen(kept, last).history["running"].values) > (last - first) / 2 - 3


def test_marks_are_alarms_actions_settings_and_ones_own(timeline: Timeline) -> None:
    marks = timeline.marks()
    assert [mark.at for mark in marks] == sorted(mark.at for mark in marks)
    signs = {mark.sign for mark in marks}
    assert {"▲", "△", "D", "H", "m"} <= signs
    assert [mark.text for mark in marks if mark.kind == "own"] == ["it got slow"]
    drain = next(mark for mark in marks if mark.sign == "D")
    drained = [each for each in seen(timeline, span(timeline)[1]).operations if each.kind == "drain"]
    assert drain.at == drained[0].started_at


def test_a_picture_is_the_same_after_it_was_told_as_a_snapshot() -> None:
    picture = pictures.incident()
    state = ConsoleState("")
    lines = list(snapshot_lines(snapshot_deltas(picture), "e", 7, picture.at))
    assert fold_all(state, decoded(iter(lines))) == len(lines)
    assert state.position == ("e", 7)
    again = state.picture(picture.at, picture.at)
    assert again.fleet == picture.fleet
    assert again.totals == picture.totals
    assert again.held == picture.held
    assert again.events == picture.events
    assert sorted(again.operations, key=str) == sorted(picture.operations, key=str)
    for name, replica in picture.replicas.items():
        assert again.replicas[name].status == replica.status
        assert again.replicas[name].rows == replica.rows
        assert again.replicas[name].order == replica.order
        mine, theirs = again.replicas[name].blocks, replica.blocks
        if theirs is not None:
            assert mine is not None
            assert mine.kinds == theirs.kinds
            assert mine.refs == theirs.refs
            assert named(mine) == named(theirs)


def test_a_replica_that_nobody_looked_at_lacks_detail(timeline: Timeline) -> None:
    picture = seen(timeline, span(timeline)[1])
    assert not lacks_detail(picture, ("r0", "r9"))
    bare = dataclasses.replace(picture.replicas["r0"], rows={}, order=())
    assert lacks_detail(dataclasses.replace(picture, replicas={"r0": bare}), ("r0",))


def test_a_piece_fills_what_the_own_tape_lacks(timeline: Timeline) -> None:
    from_at, to_at = span(timeline)
    fresh = Timeline("console that came late")
    assert fresh.picture(to_at) is None
    fresh.add_piece(copy.copy(timeline.own))
    assert fresh.version == 1
    assert known(seen(fresh, to_at)) == known(seen(timeline, to_at))
    assert fresh.span() == (from_at, to_at)
    assert fresh.picture(from_at - 1.0) is None
