"""What happened, in order: a bounded history of events, and those who listen.

Subscribers are called at once, in the server's loop, and must not block; what they cannot digest they drop
themselves. One that raises is a bug of ours: it is logged and the others still hear.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

from infer_engine.protocol import Event, EventKind, FinishReason, PreemptMode, ReplicaState, Step, Tier

log = logging.getLogger(__name__)

#: Events kept for those who ask later.
HISTORY = 10_000

FeedItem = Event | Step
Subscriber = Callable[[FeedItem], None]


class Feed:
    """``seq`` of events counts from 1; steps carry their own numbers and are not kept."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.wall = wall
        self.seq = 0
        self._history: deque[Event] = deque(maxlen=HISTORY)
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Hear every item from now on. Returns the function that ends it (calling that twice is fine)."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def events(self, after: int = 0, limit: int = HISTORY) -> list[Event]:
        """The newest ``limit`` events with ``seq`` above ``after``, oldest first."""
        newer = [event for event in self._history if event.seq > after]
        return newer[-limit:] if limit > 0 else []

    def event(
        self,
        kind: EventKind,
        *,
        replica: str | None = None,
        request: str | None = None,
        tenant: str | None = None,
        tier: Tier | None = None,
        reason: FinishReason | PreemptMode | ReplicaState | str | None = None,
        blocks: int | None = None,
        tokens: int | None = None,
        wait_s: float | None = None,
        to_replica: str | None = None,
        operation: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        synthetic: bool = False,
    ) -> Event:
        """Number, keep and publish one event. ``message`` is server-made text: user text never enters it."""
        self.seq += 1
        event = Event(
            seq=self.seq,
            at=self.wall(),
            kind=kind,
            replica=replica,
            request=request,
            tenant=tenant,
            tier=tier,
            reason=reason,
            blocks=blocks,
            tokens=tokens,
            wait_s=wait_s,
            to_replica=to_replica,
            operation=operation,
            actor=actor,
            message=message,
            synthetic=synthetic,
        )
        self._history.append(event)
        self._publish(event)
        return event

    def step(self, step: Step) -> None:
        self._publish(step)

    def _publish(self, item: FeedItem) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(item)
            except Exception:
                log.exception("a feed subscriber failed")
