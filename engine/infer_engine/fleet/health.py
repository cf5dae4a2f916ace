"""Whether a replica steps and answers."""

from infer_engine.protocol import Health
from infer_engine.replica.handle import ReplicaHandle

#: A replica with work has stalled when it has not stepped for so many real seconds, and for STALL_STEPS of
#: its longest recent steps.
STALL_S = 5.0
STALL_STEPS = 5
#: States in which a replica has a process that answers.
LIVE_STATES = frozenset({"ready", "draining", "drained"})


def health(handle: ReplicaHandle, now_s: float, *, has_work: bool) -> Health | None:
    """None while it has no process that could step. A replica that says nothing at all has stalled too: even
    an idle one tells once a second that it lives."""
    if handle.state not in LIVE_STATES:
        return None
    patience_s = max(STALL_S * handle.pace, STALL_STEPS * max(handle.step_times_s, default=0.0))
    if handle.heard_s is not None and now_s - handle.heard_s > patience_s:
        return "stalled"
    if not has_work:
        return "idle"
    moments = [each for each in (handle.last_step_s, handle.work_since_s) if each is not None]
    return "stalled" if moments and now_s - max(moments) > patience_s else "ok"
