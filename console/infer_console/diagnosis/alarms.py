"""What is wrong right now: pure rules over a picture, each naming its evidence and what to do about it.
The replica is in its own field, not in the text.

A rule that lacks a number stays silent: unknown is neither good nor bad. ``since_s`` is the memory's to add.
An action is one short clause: it is shown whole, whatever becomes of the text.
"""

from collections.abc import Callable, Iterator

import msgspec
from infer_engine.protocol import Alarm

from infer_console.diagnosis.load_alarms import kv_nearly_full, preempting, queueing_on_kv, slow_ttft
from infer_console.diagnosis.state_alarms import (
    draining,
    invariant_violations,
    no_ready_replica,
    replica_failed,
    replica_fenced,
    replica_restarting,
    replica_stalled,
    replica_unreachable,
    shortfall,
    specs_not_kept,
)
from infer_console.state.picture import Picture
from infer_console.view.alarms import gravity
from infer_console.view.format import age

LINK_LOST = "link_lost"

Rule = Callable[[Picture], Iterator[Alarm]]


#: In the order in which they are shown.
RULES: tuple[Rule, ...] = (
    no_ready_replica,
    replica_failed,
    replica_unreachable,
    replica_fenced,
    replica_stalled,
    invariant_violations,
    queueing_on_kv,
    replica_restarting,
    preempting,
    kv_nearly_full,
    slow_ttft,
    draining,
    shortfall,
    specs_not_kept,
)


def find_alarms(picture: Picture) -> tuple[Alarm, ...]:
    """All alarms of a picture, the gravest first, else in the rules' order."""
    found = [alarm for rule in RULES for alarm in rule(picture)]
    found.sort(key=gravity)
    if picture.link.state != "lost":
        return tuple(found)
    # What was true of a server that cannot be reached may be so no longer, and nothing can be done there.
    then = [msgspec.structs.replace(alarm, text=f"as of then: {alarm.text}", action=None) for alarm in found]
    return link_lost(picture), *then


def link_lost(picture: Picture) -> Alarm:
    age_s = picture.link.age_s
    lasts = f" for {age(age_s)}" if age_s is not None else ""
    why = f" ({picture.link.message})" if picture.link.message else ""
    return Alarm(
        rule=LINK_LOST,
        severity="critical",
        text=f"server not reachable{lasts}; the view is old{why}",
        action="the console goes on trying",
    )
