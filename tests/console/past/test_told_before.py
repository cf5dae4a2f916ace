"""Who comes in the middle of an incident knows since when: the diagnosis is given what was before."""

import dataclasses

from infer_console.diagnosis.judge import Judge
from infer_console.past.told_before import judged_before
from support.incident import RECORDING, messages, replayed

#: Clocks that have nothing to do with each other: the console's, and that of its diagnosis.
SHIFT_S, OFFSET_S = 1_000.0, 77.0


def test_since_when_is_known_at_once() -> None:
    end_at = messages()[-1][1].at
    picture = replayed().picture(end_at)
    assert picture is not None
    here = dataclasses.replace(picture, at=end_at + SHIFT_S, alarms=(), findings=())
    content = RECORDING.read_bytes()
    told = judged_before(content, "unix:///x", shift_s=SHIFT_S, offset_s=OFFSET_S, go_on=lambda: True).judged(
        here, here.at - OFFSET_S
    )
    fresh = Judge().judged(here, here.at - OFFSET_S)
    alone = {(alarm.rule, alarm.replica): alarm for alarm in fresh.alarms}
    known = {(alarm.rule, alarm.replica): alarm for alarm in told.alarms}
    assert alone.keys() <= known.keys()
    assert all(not alarm.since_s and not alarm.at_least_s for alarm in alone.values())
    assert any((known[key].since_s or known[key].at_least_s or 0.0) > 5.0 for key in alone)
    longest_s = max((finding.since_s or 0.0 for finding in told.findings), default=0.0)
    assert longest_s > max((finding.since_s or 0.0 for finding in fresh.findings), default=0.0)


def test_the_console_that_ends_does_not_wait_for_it() -> None:
    turns: list[None] = []

    def go_on() -> bool:
        turns.append(None)
        return len(turns) < 3

    judged_before(RECORDING.read_bytes(), "unix:///x", shift_s=0.0, offset_s=0.0, go_on=go_on)
    assert len(turns) == 3
