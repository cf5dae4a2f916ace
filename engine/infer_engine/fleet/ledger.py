"""Every request the server knows: the live ones whole, the last finished ones as a row each.

Where a request is, is written here and nowhere else: a replica's load is what the ledger has on it, so it
cannot drift from what was dispatched, finished or lost.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from infer_engine.fleet.feed import Feed
from infer_engine.fleet.generation import Generation
from infer_engine.fleet.rows import live_row, tombstone
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import FinishReason, RequestRow

#: Finished requests that can still be asked about.
MOST_TOMBSTONES = 1_000


@dataclass(slots=True)
class Ledger:
    """``clock`` is monotonic seconds. Times in it are the server's."""

    feed: Feed
    clock: Callable[[], float]
    live: dict[str, Tracked] = field(default_factory=dict[str, Tracked])
    #: Finished requests by reason, test traffic included, since the start.
    finished: Counter[str] = field(default_factory=lambda: Counter[str]())
    _on: dict[str, dict[str, Tracked]] = field(default_factory=dict[str, dict[str, Tracked]])
    _tombstones: OrderedDict[str, RequestRow] = field(default_factory=OrderedDict[str, RequestRow])
    _listeners: list[Callable[[Tracked], None]] = field(default_factory=list[Callable[[Tracked], None]])
    _leave_listeners: list[Callable[[Tracked, str], None]] = field(
        default_factory=list[Callable[[Tracked, str], None]]
    )

    def enter(self, generation: Generation) -> Tracked:
        request = Tracked(generation=generation, waiting_since_s=generation.arrived_s)
        self.live[generation.id] = request
        generation.log.submitted(generation.arrived_s, generation.spec.moments)
        return request

    def forget(self, request: Tracked) -> None:
        """Undo ``enter`` for a request that was refused."""
        self.displace(request)
        del self.live[request.id]

    def place(self, request: Tracked, replica: str, why: str | None = None) -> None:
        """``why`` there, in a few words of ours."""
        request.generation.replica = replica
        request.generation.log.placed(self.clock(), replica, why)
        request.restart_wait()
        request.placed_s = self.clock()
        self._on.setdefault(replica, {})[request.id] = request

    def displace(self, request: Tracked) -> None:
        """It is on no replica any more."""
        replica = request.generation.replica
        if replica is not None and self._on[replica].pop(request.id, None) is not None:
            for listener in self._leave_listeners:
                listener(request, replica)
        if replica is not None:
            request.generation.log.held(self.clock())
        request.generation.replica = None
        request.restart_wait()

    def on(self, replica: str) -> list[Tracked]:
        """Requests placed there, in the order in which they were."""
        return list(self._on.get(replica, {}).values())

    def has_any(self, replica: str) -> bool:
        """Whether a request is placed there."""
        return bool(self._on.get(replica))

    def knows(self, request_id: str) -> bool:
        return request_id in self.live or request_id in self._tombstones

    def row(self, request_id: str) -> RequestRow | None:
        """As it is now, or as it ended; None when it was never there or too long ago."""
        request = self.live.get(request_id)
        if request is not None:
            return live_row(request, self.clock())
        return self._tombstones.get(request_id)

    def tombstones(self) -> list[RequestRow]:
        """Finished requests, the latest first."""
        return list(reversed(self._tombstones.values()))

    def ended_after(self, at: float, limit: int) -> list[RequestRow]:
        """At most ``limit`` of those that finished after ``at`` (Unix seconds), the latest first."""
        rows: list[RequestRow] = []
        for row in reversed(self._tombstones.values()):
            if len(rows) >= limit or row.ended_at is None or row.ended_at <= at:
                break
            rows.append(row)
        return rows

    def on_finish(self, listener: Callable[[Tracked], None]) -> None:
        """Hear of every request that ended, just after it did."""
        self._listeners.append(listener)

    def on_leave(self, listener: Callable[[Tracked, str], None]) -> None:
        """Hear of every request that leaves a replica, for whatever reason (an end, a refusal, a loss, a
        move), while what is known of it there still stands."""
        self._leave_listeners.append(listener)

    def finish(
        self,
        request: Tracked,
        reason: FinishReason,
        *,
        code: str | None = None,
        error: str | None = None,
        freed_blocks: int | None = None,
        said: str | None = None,
    ) -> None:
        """End it, once: its readers wake, the feed says so, a row of it stays. ``error`` is server-made
        text; ``said`` may quote the request, so its client alone is told."""
        generation = request.generation
        if generation.finished:
            return
        replica = generation.replica
        row = tombstone(request, reason, self.clock(), self.feed.wall())
        generation.log.finished(self.clock(), code or reason, len(generation.emitted), freed_blocks)
        self.displace(request)
        # Its readers may still ask where it ran.
        generation.replica = replica
        del self.live[request.id]
        generation.finish_reason = reason
        generation.error_code, generation.error = code, f"{error}: {said}" if error and said else error
        self._tombstones[request.id] = row
        while len(self._tombstones) > MOST_TOMBSTONES:
            self._tombstones.popitem(last=False)
        self.finished[reason] += 1
        generation.wake()
        self.feed.event(
            "finish",
            replica=replica,
            request=request.id,
            tenant=generation.spec.tenant,
            tier=generation.spec.tier,
            reason=reason,
            blocks=freed_blocks,
            tokens=len(generation.emitted),
            actor=request.intent.actor if request.intent and request.intent.actor else None,
            message=error,
            synthetic=generation.spec.synthetic,
        )
        for listener in self._listeners:
            listener(request)
