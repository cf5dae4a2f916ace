"""What all who watch are told of replicas that nobody looks at closely, worked out once for all of them.

In a small fleet that is how things are when they ask. In a large one a replica's status may be a little
older: up to :data:`PER_S` are worked out in a second, however many watch, a few at a time rather than all at
once, so that the event loop is never held for long. What an operator does, and a change of state, shows at
once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from infer_engine.fleet.views import Views
from infer_engine.protocol import ReplicaFrame, Status

#: Up to so many replicas everything is worked out anew for everybody.
SMALL_FLEET = 64
#: Statuses of replicas that are worked out in a second; one takes some 0.1 ms.
PER_S = 500.0
#: How old the totals of a large fleet may be at least, and the status of one of its replicas.
SHORTEST_S = 0.5


def period_s(replicas: int) -> float:
    """How old, in real seconds, the status of a replica may be that nobody looks at closely."""
    return 0.0 if replicas <= SMALL_FLEET else max(SHORTEST_S, replicas / PER_S)


@dataclass(slots=True)
class _Entry:
    frame: ReplicaFrame
    state: tuple[object, ...]
    due_s: float


@dataclass(slots=True)
class Board:
    """``clock`` is the fleet's, ``pace`` its seconds in a real one."""

    views: Views
    clock: Callable[[], float]
    pace: float
    _entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    _status: Status | None = None
    _status_due_s: float = 0.0

    def frame(self, replica: str) -> ReplicaFrame:
        """Of its status alone; the very same object as long as it is not worked out anew. KeyError when there
        is no such replica."""
        period = period_s(len(self.views.handles))
        if not period:
            self._entries.clear()
            return self.views.frame(replica, rows=False)
        now_s, state = self.clock(), self._state(replica)
        entry = self._entries.get(replica)
        if entry is not None and entry.state == state and now_s < entry.due_s:
            return entry.frame
        # The first time they are all worked out together; from then on each at a time of its own.
        share = 1.0 if entry is not None else (len(self._entries) + 1) / len(self.views.handles)
        due_s = now_s + period * self.pace * min(1.0, share)
        self._entries[replica] = _Entry(self.views.frame(replica, rows=False), state, due_s)
        return self._entries[replica].frame

    def status(self) -> Status:
        """The whole fleet's."""
        ids = list(self.views.handles)
        period = period_s(len(ids))
        if not period:
            return self.views.status()
        now_s = self.clock()
        for gone in self._entries.keys() - self.views.handles.keys():
            del self._entries[gone]
        if self._status is None or now_s >= self._status_due_s:
            told = [self.frame(replica).status for replica in ids]
            self._status = self.views.status([each for each in told if each is not None])
            self._status_due_s = now_s + period * self.pace
        return self._status

    def _state(self, replica: str) -> tuple[object, ...]:
        """What shows at once when it changes."""
        handle = self.views.handles[replica]
        return handle.state, handle.incarnation, handle.error, handle.bad, self.views.version(replica)
