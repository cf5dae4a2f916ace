"""What to tell a watcher of the fleet: everything, or what changed since what it was last told.

State is coalesced: who is told seldom gets the newest state, not its history. Steps and events are not; they
wait in a bounded queue.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Protocol

from infer_engine.control.frames import STATUS_ONLY, SentReplica, row_changed
from infer_engine.control.operations import Operations
from infer_engine.control.outbox import Queue
from infer_engine.control.watch_query import Query
from infer_engine.fleet.board import period_s
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import (
    Delta,
    Event,
    EventDelta,
    FleetDelta,
    HeldDelta,
    OperationDelta,
    ReplicaGone,
    ReplicaState,
    RequestRow,
    SnapshotBegin,
    SnapshotEnd,
    Status,
    Step,
)

#: Events at the head of a snapshot.
SNAPSHOT_EVENTS = 100
FLEET_PERIOD_S = 0.5
HELD_AGE_PERIOD_S = 1.0
#: States in which a replica has a process that tells of its blocks.
LIVE_STATES: frozenset[ReplicaState] = frozenset({"ready", "draining", "drained"})


class Source(Protocol):
    """What is read of the server."""

    fleet: Fleet
    operations: Operations
    server_version: str
    capabilities: list[str]
    #: Numbers the messages of all streams.
    sequence: Iterator[int]

    def watched(self) -> Status: ...


class Deltas:
    """One watcher's. ``clock`` is monotonic seconds. Between ``open`` and ``close`` steps and events are
    queued."""

    def __init__(self, source: Source, query: Query, clock: Callable[[], float]) -> None:
        self.query = query
        self._source = source
        self._clock = clock
        self.queue = Queue(self._wants)
        self._replicas: dict[str, SentReplica] = {}
        self._fleet: FleetDelta | None = None
        self._fleet_at_s = 0.0
        self._held: list[RequestRow] = []
        self._held_ages_at_s = 0.0
        self._heard = ExitStack()

    def open(self) -> None:
        self._heard.callback(self._source.fleet.feed.subscribe(self.queue.put))
        self._heard.callback(self._source.operations.subscribe(self.queue.put_operation))

    def close(self) -> None:
        self._heard.close()
        self.queue.restart()

    def observing(self) -> ExitStack:
        """Have the replicas observed as asked for, until what this returns is closed."""
        observed = ExitStack()
        hz = self.query.hz
        if self.query.replicas is None and not self._is_near:
            # Nobody is told more often; in a large fleet what they all say is work, too.
            hz = min(hz, 1 / (period_s(len(self._source.fleet.replica_ids())) or 1 / hz))
        for replica in self.query.replicas or [None]:
            observer = self._source.fleet.observe(replica, hz, self.query.detail.blocks)
            observed.enter_context(closing(observer))
        return observed

    @property
    def is_observed(self) -> bool:
        """The block maps that were asked for are there, where there can be any."""
        fleet = self._source.fleet
        ids = [each for each in fleet.replica_ids() if self._asked(each)]
        live = [each for each in ids if fleet.replica(each).state in LIVE_STATES]
        return not self.query.detail.blocks or all(fleet.frame(each).blocks is not None for each in live)

    def snapshot(self) -> list[Delta]:
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

    def changes(self) -> list[Delta]:
        """Everything from one moment: the steps that led to a frame come before it."""
        return [*self.queue.take(), *self._frames(), *self._held_delta(), *self._fleet_delta()]

    def _frames(self) -> list[Delta]:
        now_s = self._clock()
        deltas: list[Delta] = []
        ids = self._source.fleet.replica_ids()
        shown = dict.fromkeys(each for each in ids if self.query.others or self._asked(each))
        for replica in [each for each in self._replicas if each not in shown]:
            del self._replicas[replica]
            deltas.append(ReplicaGone(replica=replica))
        fleet, near = self._source.fleet, self._is_near
        for replica in shown:
            sent = self._replicas.setdefault(replica, SentReplica())
            if near and self._asked(replica):
                frame = sent.delta(fleet.frame(replica), self.query.detail, now_s)
            else:
                frame = sent.delta(fleet.board.frame(replica), STATUS_ONLY, now_s)
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
        status = self._source.watched()
        delta = FleetDelta(fleet=status.fleet, totals=status.totals)
        if delta == self._fleet:
            return []
        self._fleet = delta
        return [delta]

    def _wants(self, item: Event | Step) -> bool:
        if isinstance(item, Event):
            return True
        return self.query.detail.steps and self._asked(item.replica)

    @property
    def _is_near(self) -> bool:
        """More than its status is told of what was asked for."""
        return self.query.detail.roster or self.query.detail.blocks

    def _asked(self, replica: str) -> bool:
        return self.query.replicas is None or replica in self.query.replicas
