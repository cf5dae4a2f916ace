"""Bounded feeds: what happened, and which operations are under way."""

from collections import deque

from infer_engine.protocol import Event, Operation
from msgspec.structs import replace

MAX_EVENTS = 2_000
MAX_OPERATIONS = 200

ENDED = frozenset({"succeeded", "failed", "cancelled", "unknown"})
LOST = "the server was restarted: what became of it is not known"


class EventFeed:
    """Events oldest first. A server tells recent ones again on every snapshot; each is kept once."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._epoch = ""
        self._last_seq = -1
        self._picture: tuple[Event, ...] | None = ()

    def add(self, epoch: str, event: Event) -> None:
        if event.seq == 0:  # what the console that recorded this saw itself
            if event not in self._events:
                self._append(event)
            return
        if epoch != self._epoch:  # another server process: its sequence numbers start anew
            self._epoch, self._last_seq = epoch, -1
        if event.seq <= self._last_seq:
            return
        self._last_seq = event.seq
        self._append(event)

    def noticed(self, at: float, reason: str, message: str) -> Event:
        """What this console saw itself; no server numbers it."""
        event = Event(seq=0, at=at, kind="replica", reason=reason, message=message or None)
        self._append(event)
        return event

    def _append(self, event: Event) -> None:
        self._events.append(event)
        self._picture = None

    def picture(self) -> tuple[Event, ...]:
        if self._picture is None:
            self._picture = tuple(self._events)
        return self._picture


class OperationFeed:
    """The newest state of each operation, oldest first; the oldest ended one goes first when there are too
    many. Those of a server that was started anew keep a name of their own, since ids begin anew with it."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}
        self._epoch: str | None = None
        self._picture: tuple[Operation, ...] | None = ()

    def add(self, operation: Operation) -> None:
        self._operations[operation.id] = operation
        if len(self._operations) > MAX_OPERATIONS:
            known = sorted(self._operations.values(), key=_age)
            ended = (each.id for each in known if each.phase in ENDED)
            del self._operations[next(ended, known[0].id)]
        self._picture = None

    def of_epoch(self, epoch: str, at: float) -> None:
        """What comes now is of this server process; ``at`` is its clock. What another had under way ended
        with it, nobody knows how."""
        before, self._epoch = self._epoch, epoch
        if before in (None, epoch) or not self._operations:
            return
        kept = [_left(each, before, at) for each in self._operations.values()]
        self._operations = {each.id: each for each in kept}
        self._picture = None

    def picture(self) -> tuple[Operation, ...]:
        if self._picture is None:
            self._picture = tuple(sorted(self._operations.values(), key=_age))
        return self._picture


def _left(operation: Operation, epoch: str, at: float) -> Operation:
    """An operation of a server that is gone."""
    name = operation.id if "@" in operation.id else f"{operation.id}@{epoch[:8]}"
    if operation.phase in ENDED:
        return replace(operation, id=name)
    return replace(
        operation,
        id=name,
        phase="unknown",
        ended_at=max(at, operation.started_at),
        deadline_at=None,
        message=LOST,
    )


def _age(operation: Operation) -> tuple[float, int, str]:
    """The oldest first; ids of one moment count up (op-9, op-10)."""
    return operation.started_at, len(operation.id), operation.id
