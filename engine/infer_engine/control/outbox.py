"""What waits to be sent to one watcher, and how it is numbered when it is."""

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from infer_engine.protocol import (
    Delta,
    Envelope,
    Event,
    EventDelta,
    Operation,
    OperationDelta,
    Step,
    StepDelta,
)

#: Steps and events that wait for a client at most.
QUEUE_LENGTH = 1_024


class Chain:
    """Numbers the messages of one connection: ``seq`` grows over all connections of the server, ``prev`` is
    the one sent before on this connection, so a client sees a gap even in a filtered stream."""

    def __init__(self, epoch: str, sequence: Iterator[int], wall: Callable[[], float]) -> None:
        self._epoch = epoch
        self._sequence = sequence
        self._wall = wall
        self._prev = 0
        self._encoder = msgspec.json.Encoder()

    def message(self, delta: Delta) -> bytes:
        seq = next(self._sequence)
        envelope = Envelope(epoch=self._epoch, seq=seq, prev=self._prev, at=self._wall(), delta=delta)
        self._prev = seq
        tag = type(delta).__struct_config__.tag
        # JSON holds no raw line end, so one data line is enough.
        return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (
            self._epoch.encode(),
            seq,
            str(tag).encode(),
            self._encoder.encode(envelope),
        )


class Queue:
    """Steps and events that one client has not been sent yet. Overflow drops them all: the client gets a
    snapshot."""

    def __init__(self, wants: Callable[[Event | Step], bool]) -> None:
        self._wants = wants
        self._items: deque[Event | Step] = deque()
        self._operations: dict[str, Operation] = {}
        #: Items dropped since the last ``restart``; above 0, the client has to be reset.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items) + len(self._operations)

    def put(self, item: Event | Step) -> None:
        if not self._wants(item):
            return
        if self._has_room():
            self._items.append(item)

    def put_operation(self, operation: Operation) -> None:
        """Only an operation's newest state is worth sending."""
        if operation.id in self._operations or self._has_room():
            self._operations[operation.id] = operation

    def take(self) -> list[Delta]:
        deltas: list[Delta] = [
            StepDelta(step=item) if isinstance(item, Step) else EventDelta(event=item) for item in self._items
        ]
        deltas += [OperationDelta(operation=operation) for operation in self._operations.values()]
        self._items.clear()
        self._operations.clear()
        return deltas

    def _has_room(self) -> bool:
        if not self.dropped and len(self) < QUEUE_LENGTH:
            return True
        self.dropped += len(self) + 1
        self._items.clear()
        self._operations.clear()
        return False

    def restart(self) -> int:
        """Begin anew with a snapshot; returns how many items were lost before it."""
        dropped, self.dropped = self.dropped, 0
        self._items.clear()
        self._operations.clear()
        return dropped
