"""The mark up to which requests are admitted is the cause: too high a headroom, or one that was changed just
before."""

from collections.abc import Iterator

from infer_engine.protocol import Replica

from infer_console.diagnosis.case import Case, MarkChange, interactive_waiting, kv_share
from infer_console.diagnosis.rules.pressure import PREEMPTIONS, headroom_ratio, preempted
from infer_console.diagnosis.rules.queueing import HELD_S, SHARE
from infer_console.diagnosis.track import Track
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import age, count, percent

#: Headroom from here on is much, when requests wait for it.
MUCH = 0.20
#: Share of the pool that nobody uses meanwhile.
ROOM = 0.15
#: The headroom that is proposed: the default.
DEFAULT = 0.10
#: A change is looked at for so long.
CHANGED_S = 300.0


def headroom_high(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.ready():
        headroom, kv = headroom_ratio(replica.kv), replica.kv
        waiting = interactive_waiting(replica)
        if headroom is None or headroom < MUCH or not waiting or kv.total is None:
            continue
        if not track.holds("interactive_waiting", 1, HELD_S) or not track.holds("free_ratio", ROOM, HELD_S):
            continue
        reasons = replica.waiting_reasons
        if reasons.get("headroom", 0) == 0 or reasons.get("headroom", 0) < reasons.get("kv", 0):
            continue
        if track.change("preemptions", 120.0):
            continue
        gained = round(kv.total * (headroom - DEFAULT))
        yield Finding(
            rule="headroom_high",
            replica=name,
            since_s=track.held_s("interactive_waiting", 1),
            evidence={
                "waiting": waiting,
                "wait_on_headroom": reasons.get("headroom", 0),
                "headroom_ratio": headroom,
                "free_ratio": track.last("free_ratio"),
                "admit_limit_blocks": kv.admit_limit,
                "kv_total_blocks": kv.total,
            },
            confidence=kv_share(reasons),
            words=f"headroom too high: {waiting} wait while {percent(track.last('free_ratio'))}% of the pool"
            f" is free; {percent(headroom)}% is kept from them",
            action=Proposal(
                name="headroom",
                target=name,
                params={"headroom": f"{round(100 * DEFAULT)}%", "tier": "interactive", "revert_after": "10m"},
                words=f"{name}: headroom {percent(headroom)}%→{round(100 * DEFAULT)}%",
                effect=f"{count(gained)} blocks more to admit {waiting} that wait",
            ),
        )


def headroom_changed(case: Case) -> Iterator[Finding]:
    """Trouble of the kind that the change makes, and that was not there before it."""
    for name, replica, track in case.ready():
        mark = case.marks.get(name)
        if mark is None or not 0 <= case.picture.at - mark.at <= CHANGED_S:
            continue
        suffering = _suffering(replica, track, mark, case.picture.at)
        if suffering is None or replica.kv.total is None:
            continue
        ago_s = case.picture.at - mark.at
        yield Finding(
            rule="headroom_changed",
            replica=name,
            since_s=ago_s,
            evidence={
                "admit_limit_before_blocks": mark.before,
                "admit_limit_blocks": mark.after,
                "changed_ago_s": ago_s,
                "waiting": interactive_waiting(replica),
                "preempted": preempted(replica, track),
            },
            confidence=0.9,
            words=f"headroom was changed {age(ago_s)} ago: admitted up to {count(mark.after)} blocks,"
            f" {count(mark.before)} before; since then {suffering}",
            action=Proposal(
                name="headroom",
                target=name,
                params={
                    "headroom": f"{max(0, replica.kv.total - mark.before)}b",
                    "tier": "interactive",
                },
                words=f"{name}: headroom back to {count(replica.kv.total - mark.before)} blocks",
                effect=f"admitted up to {count(mark.before)} blocks as before",
            ),
        )


def _suffering(replica: Replica, track: Track, mark: MarkChange, now: float) -> str | None:
    if mark.after < mark.before:
        held_s = track.held_s("interactive_waiting", 1)
        waiting = interactive_waiting(replica)
        waits = waiting and HELD_S <= held_s <= now - mark.at + 1.0
        if not waits or kv_share(replica.waiting_reasons) < SHARE:
            return None
        return f"{waiting} wait for blocks"
    times = preempted(replica, track)
    return f"{times} were preempted" if times >= PREEMPTIONS else None
