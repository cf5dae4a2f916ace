"""Whether a replica steps and answers."""

from collections.abc import Iterable

from infer_engine.fleet.tracked import Tracked
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
    an idle one tells once a second that it lives. Bad is one whose GPU is not to be trusted."""
    if handle.bad is not None:
        return "bad"
    if handle.state not in LIVE_STATES:
        return None
    if has_stalled(handle, now_s, has_work=has_work):
        return "stalled"
    return "ok" if has_work else "idle"


def has_stalled(handle: ReplicaHandle, now_s: float, *, has_work: bool) -> bool:
    """It has a process that should answer and step, and has not for longer than it may."""
    silent_s = without_progress_s(handle, now_s, has_work=has_work)
    return handle.state in LIVE_STATES and silent_s > patience_s(handle)


def patience_s(handle: ReplicaHandle) -> float:
    """How long it may make no progress, in seconds of the fleet's clock: its longest recent step tells how
    long the next may take, or it has said so itself."""
    own_s = handle.ready.stall_s if handle.ready is not None else None
    return max((own_s or STALL_S) * handle.pace, STALL_STEPS * max(handle.step_times_s, default=0.0))


def without_progress_s(handle: ReplicaHandle, now_s: float, *, has_work: bool) -> float:
    """For how long it has said nothing, or stepped no step though there was something to do."""
    silent_s = 0.0 if handle.heard_s is None else now_s - handle.heard_s
    moments = [each for each in (handle.last_step_s, handle.work_since_s) if each is not None]
    if not has_work or not moments:
        return silent_s
    return max(silent_s, now_s - max(moments))


def has_work(handle: ReplicaHandle, requests: Iterable[Tracked]) -> bool:
    """Whether it is to step for any of these, which it has: batch requests that wait while batch is shed are
    not to move."""
    return any(
        not handle.shed or request.state == "running" or request.generation.spec.tier != "batch"
        for request in requests
    )
