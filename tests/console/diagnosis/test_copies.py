"""A judge's copy goes on by itself, and neither knows of what the other was shown."""

import copy
import dataclasses
from collections.abc import Iterable

from infer_console.diagnosis.doctor import Doctor
from infer_console.diagnosis.judge import Judge
from infer_console.diagnosis.memory import AlarmMemory
from infer_console.diagnosis.track import Track
from infer_console.state.picture import Picture
from support import pictures

SHOWN = 12


def shown(judge: Judge, of: Picture, seconds: Iterable[int]) -> Picture:
    """What it says last; a picture a second."""
    last = of
    for second in seconds:
        last = judge.judged(dataclasses.replace(of, at=pictures.NOW + second), 1_000.0 + second)
    return last


def test_a_copy_and_what_it_was_copied_from_go_different_ways() -> None:
    incident, small = pictures.incident(), pictures.small()
    judge, alone, other = Judge(), Judge(), Judge()
    for each in (judge, alone, other):
        found = shown(each, incident, range(SHOWN))
        assert found.findings
        assert found.alarms
    copied = copy.deepcopy(judge)
    here = shown(copied, small, range(SHOWN, 3 * SHOWN))
    there = shown(judge, incident, range(SHOWN, 3 * SHOWN))
    by_itself = shown(alone, incident, range(SHOWN, 3 * SHOWN))
    assert (there.findings, there.alarms) == (by_itself.findings, by_itself.alarms)
    turned = shown(other, small, range(SHOWN, 3 * SHOWN))
    assert (here.findings, here.alarms) == (turned.findings, turned.alarms)
    assert here.findings != there.findings


def test_nothing_is_left_out_of_a_copy() -> None:
    """Whoever adds a field has to copy it."""
    judge = Judge()
    shown(judge, pictures.incident(), range(SHOWN))
    copied = copy.deepcopy(judge)
    assert vars(judge).keys() == vars(copied).keys()
    before, after = judge._doctor, copied._doctor
    for field in dataclasses.fields(Doctor):
        if field.name not in ("_fleet", "_tracks"):
            assert getattr(after, field.name) == getattr(before, field.name), field.name
    assert before._seen
    assert before._tracks
    assert all(after._seen[id] is not seen for id, seen in before._seen.items())
    assert after._tracks.keys() == before._tracks.keys()
    pairs = [
        (before._fleet, after._fleet),
        *((track, after._tracks[id]) for id, track in before._tracks.items()),
    ]
    for track, its in pairs:
        for name in Track.__slots__:
            assert repr(getattr(its, name)) == repr(getattr(track, name)), name  # NaN is not NaN
        assert its._at is not track._at
        assert all(its._numbers[key] is not kept for key, kept in track._numbers.items())
    empty, full = vars(AlarmMemory()), vars(copied._alarms)
    assert full == vars(judge._alarms)
    assert full.keys() == empty.keys()
    assert all(full["_seen"][key] is not seen for key, seen in judge._alarms._seen.items())
