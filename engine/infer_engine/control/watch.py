"""The watch stream of one client: a snapshot, then, a few times a second, what changed since what it was last
sent.

State is coalesced: a slow client gets the newest state, not its history. Steps and events are not; they
queue, and a client that lets its queue overflow is reset to a fresh snapshot instead of growing the server.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Protocol

from infer_engine.control.frames import STATUS_ONLY, SentReplica, row_changed
from infer_engine.control.operations import Operations
from infer_engine.control.outbox import Chain, Queue
from infer_engine.control.watch_query import Query
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import (
    Delta,
    Event,
    EventDelta,
    FleetDelta,
    Heartbeat,
    HeldDelta,
    OperationDelta,
    ReplicaGone,
    ReplicaState,
    RequestRow,
    Reset,
    SnapshotBegin,
    SnapshotEnd,
    Status,
    Step,
)

#: Events at the head of a snapshot.
SNAPSHOT_EVENTS = 100
HEARTBEAT_S = 2.0
FLEET_PERIOD_S = 0.5
HELD_AGE_PERIOD_S = 1.0
#: A client that is reset this often within RESET_WINDOW_S is let go.
MOST_RESETS = 3
RESET_WINDOW_S = 60.0
#: How long the snapshot waits for the block maps that the new observers asked for.
FIRST_OBSERVATION_S = 1.0
MAX_WATCHERS = 64
#: States in which a replica has a process that tells of its blocks.
LIVE_STATES: frozenset[ReplicaState] = frozenset({"ready", "draining", "drained"})


class Source(Protocol):
    """What a watch session reads of the server."""

    fleet: Fleet
    operations: Operations
    server_version: str
    capabilities: list[str]
    #: Numbers the messages of all streams.
    sequence: Iterator[int]
    #: Set when the server stops: every stream ends.
    stopping: asyncio.Event

    def status(self) -> Status: ...


class WatchSession:
    """One connection. ``clock`` is monotonic seconds, ``wall`` Unix seconds."""

    def __init__(
        self, source: Source, query: Query, *, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._source = source
        self._query = query
        self._clock = clock
        self._wall = wall
        self._chain = Chain(source.fleet.epoch, source.sequence, wall)
        self.queue = Queue(self._wants)
        self._replicas: dict[str, SentReplica] = {}
        self._fleet: FleetDelta | None = None
        self._fleet_at_s = 0.0
        self._held: list[RequestRow] = []
        self._held_ages_at_s = 0.0
        self._heartbeat_at_s = 0.0
        self._resets: deque[float] = deque(maxlen=MOST_RESETS)

    async def messages(self) -> AsyncGenerator[bytes]:
        """SSE messages, several at a time, until the server stops or the client was reset too often."""
        with ExitStack() as watching:
            watching.callback(self._source.fleet.feed.subscribe(self.queue.put))
            watching.callback(self._source.operations.subscribe(self.queue.put_operation))
            for replica in self._query.replicas or [None]:
                watching.enter_context(
                    closing(self._source.fleet.observe(replica, self._query.hz, self._query.detail.blocks))
                )
            await self._first_observation()
            yield self._encode(self._snapshot())
            next_tick_s = self._clock()
            while True:
                next_tick_s = max(next_tick_s + 1 / self._query.hz, self._clock())
                if await self._stopping_within(next_tick_s - self._clock()):
                    return
                if self.queue.dropped:
                    reset = self._reset()
                    yield self._encode(reset)
                    if len(reset) == 1:
                        return
                else:
                    changes = self._changes()
                    if changes:
                        yield self._encode(changes)

    def _wants(self, item: Event | Step) -> bool:
        if isinstance(item, Event):
            return True
        return self._query.detail.steps and self._asked(item.replica)

    def _asked(self, replica: str) -> bool:
        return self._query.replicas is None or replica in self._query.replicas

    def _encode(self, deltas: list[Delta]) -> bytes:
        return b"".join(map(self._chain.message, deltas))

    async def _stopping_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._source.stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _first_observation(self) -> None:
        """Wait a moment for block maps, so that the snapshot can be whole."""
        deadline_s = self._clock() + FIRST_OBSERVATION_S
        while self._query.detail.blocks and self._clock() < deadline_s:
            frames = map(self._source.fleet.frame, self._observable())
            if all(frame.blocks is not None for frame in frames) or await self._stopping_within(0.05):
                return

    def _observable(self) -> list[str]:
        fleet = self._source.fleet
        return [
            each
            for each in fleet.replica_ids()
            if self._asked(each) and fleet.replica(each).state in LIVE_STATES
        ]

    def _snapshot(self) -> list[Delta]:
        self.queue.restart()
        self._replicas.clear()
        self._fleet = None
        source = self._source
        begin = SnapshotBegin(server_version=source.server_version, capabilities=source.capabilities)
        self._held = source.fleet.held_rows()
        return [
            begin,
            *self._fleet_delta(),
            *self._frames(),
            HeldDelta(rows=self._held),
            *(OperationDelta(operation=each) for each in reversed(source.operations.newest_first())),
            *(EventDelta(event=event) for event in source.fleet.feed.events(limit=SNAPSHOT_EVENTS)),
            SnapshotEnd(),
        ]

    def _changes(self) -> list[Delta]:
        """Everything from one moment: the steps that led to a frame come before it."""
        return [
            *self.queue.take(),
            *self._frames(),
            *self._held_delta(),
            *self._fleet_delta(),
            *self._heartbeat(),
        ]

    def _reset(self) -> list[Delta]:
        """A reset and a fresh snapshot, or a reset alone: then the client is let go."""
        now_s = self._clock()
        full = len(self._resets) == MOST_RESETS
        if full and now_s - self._resets[0] < RESET_WINDOW_S:
            return [
                Reset(why="slow_consumer: reset too often, the connection ends", dropped=self.queue.restart())
            ]
        self._resets.append(now_s)
        reset = Reset(why="slow_consumer: the queue was full", dropped=self.queue.restart())
        return [reset, *self._snapshot()]

    def _frames(self) -> list[Delta]:
        now_s = self._clock()
        deltas: list[Delta] = []
        ids = self._source.fleet.replica_ids()
        shown = [each for each in ids if self._query.others or self._asked(each)]
        for replica in [each for each in self._replicas if each not in shown]:
            del self._replicas[replica]
            deltas.append(ReplicaGone(replica=replica))
        for replica in shown:
            sent = self._replicas.setdefault(replica, SentReplica())
            detail = self._query.detail if self._asked(replica) else STATUS_ONLY
            frame = sent.delta(self._source.fleet.frame(replica), detail, now_s)
            if frame is not None:
                deltas.append(frame)
        return deltas

    def _held_delta(self) -> list[Delta]:
        rows = self._source.fleet.held_rows()
        now_s = self._clock()
        ages_due = now_s - self._held_ages_at_s >= HELD_AGE_PERIOD_S
        same = len(rows) == len(self._held) and not any(
            before.id != now.id or row_changed(before, now, ages_due)
            for before, now in zip(self._held, rows, strict=True)
        )
        if same:
            return []
        self._held = rows
        self._held_ages_at_s = now_s
        return [HeldDelta(rows=rows)]

    def _fleet_delta(self) -> list[Delta]:
        now_s = self._clock()
        if self._fleet is not None and now_s - self._fleet_at_s < FLEET_PERIOD_S:
            return []
        self._fleet_at_s = now_s
        status = self._source.status()
        delta = FleetDelta(fleet=status.fleet, totals=status.totals)
        if delta == self._fleet:
            return []
        self._fleet = delta
        return [delta]

    def _heartbeat(self) -> list[Delta]:
        now_s = self._clock()
        if now_s - self._heartbeat_at_s < HEARTBEAT_S:
            return []
        self._heartbeat_at_s = now_s
        return [Heartbeat(at=self._wall())]
