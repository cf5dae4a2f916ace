"""A replica's state changes in one place, so that the feed tells of every change."""

from infer_engine.fleet.feed import Feed
from infer_engine.protocol import ReplicaState
from infer_engine.replica.handle import ReplicaHandle


def set_state(
    handle: ReplicaHandle, feed: Feed, state: ReplicaState, *, message: str | None = None, actor: str = ""
) -> None:
    """Change a replica's state; the feed tells of every change. ``message`` is server-made text."""
    if handle.state == state:
        return
    handle.state = state
    feed.event("replica", replica=handle.id, reason=state, message=message, actor=actor or None)
