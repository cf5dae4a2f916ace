"""Watchers that lost their connection and may come back for what they missed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from infer_engine.control.problems import echo
from infer_engine.control.watch import WatchSession
from infer_engine.control.watch_query import Query
from infer_engine.fleet.generation import Refusal, refuse

#: How long a session is kept for a client that left, and how many of them.
KEPT_S = 30.0
MOST_KEPT = 16
#: More digits than any message number has.
MOST_DIGITS = 18


@dataclass(slots=True)
class Sessions:
    """Open sessions, and for a while those whose clients left: their events and steps go on to be queued,
    within the queue's bound."""

    epoch: str
    make: Callable[[Query, Callable[[WatchSession], None]], WatchSession]
    _open: list[WatchSession] = field(default_factory=list[WatchSession])
    _left: dict[WatchSession, asyncio.TimerHandle] = field(
        default_factory=dict[WatchSession, asyncio.TimerHandle]
    )

    def new(self, query: Query) -> WatchSession:
        session = self.make(query, self._client_left)
        self._open.append(session)
        return session

    def ended(self, session: WatchSession) -> None:
        """A connection of it is closed. One that never sent anything is of no use; others close themselves,
        or are kept for their clients."""
        if session.replay.is_empty:
            session.close()
        if session.is_closed and session in self._open:
            self._open.remove(session)

    def find(self, since: str, query: Query) -> tuple[WatchSession, int] | None:
        """The session that sent the message ``epoch:seq``, and seq; None when it was with another filter:
        then a fresh snapshot is the answer. Refusal: 400 when ``since`` is no such id, 410 when what followed
        it is not here (any more)."""
        epoch, _, number = since.partition(":")
        if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
            raise refuse(
                400,
                "invalid_field",
                "since does not fit.",
                f"must be the id of a message, epoch:seq, got {echo(since)}.",
                field="since",
            )
        seq = int(number)
        if epoch != self.epoch:
            raise _gone("The server has started anew since.")
        for session in self._open:
            if session.replay.after(seq) is None:
                continue
            if session.query != query:
                return None
            timer = self._left.pop(session, None)
            if timer is not None:
                timer.cancel()
            return session, seq
        raise _gone("What followed it is not kept any more.")

    def close(self) -> None:
        """Let go of all whose clients left."""
        for session in list(self._left):
            self._forget(session)

    def _client_left(self, session: WatchSession) -> None:
        if len(self._left) >= MOST_KEPT:
            self._forget(next(iter(self._left)))
        loop = asyncio.get_running_loop()
        self._left[session] = loop.call_later(KEPT_S, self._forget, session)

    def _forget(self, session: WatchSession) -> None:
        self._left.pop(session).cancel()
        self._open.remove(session)
        session.close()


def _gone(detail: str) -> Refusal:
    return refuse(410, "too_old", "The stream cannot go on there.", detail, field="since")
