"""The watch stream of one client: a snapshot, then, a few times a second, what changed since what it was last
sent.

State is coalesced: a slow client gets the newest state, not its history. Steps and events are not; they
queue, and a client that lets its queue overflow is reset to a fresh snapshot instead of growing the server.
A client that lost its connection can go on where it was: see ``resume``.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from infer_engine.control.deltas import LIVE_STATES, Deltas
from infer_engine.control.deltas import Source as DeltaSource
from infer_engine.control.outbox import Chain, Replay
from infer_engine.control.watch_query import Query
from infer_engine.protocol import Delta, Heartbeat, Reset

HEARTBEAT_S = 2.0
#: A client that is reset this often within RESET_WINDOW_S is let go.
MOST_RESETS = 3
RESET_WINDOW_S = 60.0
#: How long the snapshot waits for the block maps that the new observers asked for.
FIRST_OBSERVATION_S = 1.0
MAX_WATCHERS = 64

__all__ = ["FIRST_OBSERVATION_S", "LIVE_STATES", "MAX_WATCHERS", "Source", "WatchSession"]


class Source(DeltaSource, Protocol):
    #: Set when the server stops: every stream ends.
    stopping: asyncio.Event


class WatchSession:
    """One client, over one connection or, with ``resume``, several. ``clock`` is monotonic seconds, ``wall``
    Unix seconds. When the client left, ``left`` is called: whoever gave it may resume the session, and has to
    close it; without it the session closes itself."""

    def __init__(
        self,
        source: Source,
        query: Query,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        left: Callable[["WatchSession"], None] | None = None,
    ) -> None:
        self.query = query
        self._source = source
        self._clock = clock
        self._wall = wall
        self._left = left
        self._chain = Chain(source.fleet.epoch, source.sequence, wall)
        self._deltas = Deltas(source, query, clock)
        self.queue = self._deltas.queue
        self.replay = Replay()
        self.is_closed = False
        self._heartbeat_at_s = 0.0
        self._resets: deque[float] = deque(maxlen=MOST_RESETS)
        #: Counts connections: the newest has the session.
        self._connection = 0

    def close(self) -> None:
        self.is_closed = True
        self._deltas.close()

    def messages(self) -> AsyncGenerator[bytes]:
        """SSE messages, several at a time, until the server stops or the client was reset too often."""
        return self._connected(None)

    def resume(self, since: int) -> AsyncGenerator[bytes]:
        """The same, beginning after the message numbered ``since``, which must be in ``replay``. A connection
        that still has the session loses it."""
        return self._connected(since)

    async def _connected(self, since: int | None) -> AsyncGenerator[bytes]:
        self._connection += 1
        connection = self._connection
        is_over = False
        try:
            with self._deltas.observing():
                if since is None:
                    self._deltas.open()
                    await self._first_observation()
                    yield self._encode(self._deltas.snapshot())
                else:
                    self._heartbeat_at_s = 0.0
                    missed = self.replay.after(since)
                    if missed is None:
                        return  # gone meanwhile: the client will ask again and be told
                    yield b"".join(missed) or b": resumed\n\n"
                next_tick_s = self._clock()
                while connection == self._connection:
                    next_tick_s = max(next_tick_s + 1 / self.query.hz, self._clock())
                    if await self._stopping_within(next_tick_s - self._clock()):
                        is_over = True
                        return
                    if connection != self._connection:
                        return
                    deltas = self._reset() if self.queue.dropped else self._changes()
                    if deltas:
                        yield self._encode(deltas)
                    if len(deltas) == 1 and isinstance(deltas[0], Reset):
                        is_over = True
                        return
        finally:
            if connection == self._connection:
                if is_over or self._left is None or self.replay.is_empty:
                    self.close()
                else:
                    self._left(self)

    def _changes(self) -> list[Delta]:
        return [*self._deltas.changes(), *self._heartbeat()]

    def _encode(self, deltas: list[Delta]) -> bytes:
        messages: list[bytes] = []
        for delta in deltas:
            prev, message = self._chain.prev, self._chain.message(delta)
            self.replay.add(prev, self._chain.prev, message)
            messages.append(message)
        return b"".join(messages)

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
        while self._clock() < deadline_s and not self._deltas.is_observed:
            if await self._stopping_within(0.05):
                return

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
        return [reset, *self._deltas.snapshot()]

    def _heartbeat(self) -> list[Delta]:
        now_s = self._clock()
        if now_s - self._heartbeat_at_s < HEARTBEAT_S:
            return []
        self._heartbeat_at_s = now_s
        return [Heartbeat(at=self._wall())]
