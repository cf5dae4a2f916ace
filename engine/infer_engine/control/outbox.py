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
#: Of what was sent to a client, so much is kept for the case that it did not arrive.
REPLAY_BYTES = 256 * 1024
REPLAY_MESSAGES = 2_048


class Chain:
    """Numbers the messages of one connection: ``seq`` grows over all connections of the server, ``prev`` is
    the one sent before on this connection, so a client sees a gap even in a filtered stream."""

    def __init__(self, epoch: str, sequence: Iterator[int], wall: Callable[[], float]) -> None:
        self._epoch = epoch
        self._sequence = sequence
        self._wall = wall
        #: ``seq`` of the newest message, 0 before the first.
        self.prev = 0
        self._encoder = msgspec.json.Encoder()

    def restart(self) -> None:
        """The next message is the first of a chain."""
        self.prev = 0

    def line(self, delta: Delta) -> bytes:
        """The next message as JSON, which holds no raw line end."""
        seq = next(self._sequence)
        envelope = Envelope(epoch=self._epoch, seq=seq, prev=self.prev, at=self._wall(), delta=delta)
        self.prev = seq
        return self._encoder.encode(envelope)

    def message(self, delta: Delta) -> bytes:
        """The next message as a server-sent event."""
        line = self.line(delta)
        tag = type(delta).__struct_config__.tag
        return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (
            self._epoch.encode(),
            self.prev,
            str(tag).encode(),
            line,
        )


class Replay:
    """The latest messages of one chain, so that a client can go on after the last that it has."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def add(self, prev: int, seq: int, message: bytes) -> None:
        self._messages.append((prev, seq, message))
        self._bytes += len(message)
        while self._bytes > REPLAY_BYTES or len(self._messages) > REPLAY_MESSAGES:
            self._bytes -= len(self._messages.popleft()[2])

    def after(self, seq: int) -> list[bytes] | None:
        """The messages that follow ``seq``; None when that was never sent here, or too long ago."""
        known = any(each == seq for _, each, _ in self._messages)
        if not known and (self.is_empty or self._messages[0][0] != seq or seq == 0):
            return None
        return [message for _, each, message in self._messages if each > seq]


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
