"""One life of a replica on a Ray cluster, as the fleet's lifecycle sees it: a process elsewhere."""

import asyncio
from collections.abc import Callable

from msgspec import structs

from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.ray_messages import End, Ended, Look, Node, ToDriver
from infer_engine.replica.wire import LINK_LOST

KILLED = -9
FAILED = 1
#: How long an order to end it may stay unanswered; then it counts as gone, and its node as out of reach.
END_S = 12.0
#: It waits for a place noticeably when so much is left of the time it has for that.
WAIT_LEFT_S = 75.0
#: How long its connection may be gone before it is, where Ray says nothing.
LINK_GRACE_S = 3.0


class RayProcess:
    """``order`` hands an order to the driver, False when there is none. ``deadline_s`` is until when it has
    to have a place, on the clock that ``look`` is called with."""

    def __init__(
        self,
        key: str,
        config: ReplicaConfig,
        threads: int,
        order: Callable[[ToDriver], bool],
        *,
        deadline_s: float,
    ) -> None:
        self.key = key
        self.config = config
        self.threads = threads
        self.pid: int | None = None
        #: Where it is; None before it has a place.
        self.node: Node | None = None
        #: Why it has none, in words; None where it waits for room.
        self.waits_for: str | None = "the Ray cluster has not answered"
        self._order = order
        self._deadline_s = deadline_s
        self._waiting_told = False
        self._asked_to_end = False
        self._answer_by_s: float | None = None
        #: It has said something over the link, whose end here it reaches at ``server``.
        self.was_reached = False
        self.server: str | None = None
        self._lost_s: float | None = None
        self._cpu_s: float | None = None
        self._last: Ended | None = None
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._on_end: Callable[[RayProcess], None] | None = None

    def on_end(self, callback: "Callable[[RayProcess], None]") -> None:
        self._on_end = callback

    # --- what the lifecycle asks for -----------------------------------------------------------------------

    async def wait(self) -> int:
        return await asyncio.shield(self._over)

    def hang_up(self) -> None:
        self._end(kindly=False)

    def kill(self) -> None:
        self._end(kindly=False)

    async def stop(self) -> int | None:
        self._end(kindly=True)
        await asyncio.wait([self._over], timeout=END_S)
        return self._over.result() if self._over.done() else None

    def cause(self) -> str | None:
        return self._last.cause if self._last is not None else None

    def log_tail(self) -> str:
        last = self._last
        if last is not None and last.log_tail is not None:
            return last.log_tail
        return "(its log is where Ray keeps that of its actor" + (
            f", on {self.node.address})" if self.node else ")"
        )

    def cpu_s(self) -> float | None:
        """As it was told last; asking makes it be told anew."""
        if self.pid is not None and not self._over.done():
            self._order(Look(key=self.key))
        return self._cpu_s

    def oom_killed(self) -> bool | None:
        return self._last.oom if self._last is not None else None

    # --- what becomes of it --------------------------------------------------------------------------------

    def running(self, pid: int) -> None:
        self.pid = pid

    def used(self, cpu_s: float | None) -> None:
        self._cpu_s = cpu_s

    def ended(self, last: Ended) -> None:
        """The first counts."""
        if self._over.done():
            return
        if last.code == LINK_LOST:
            last = structs.replace(last, code=KILLED, cause=self._unconnected())
        self._last = last
        # None: even SIGKILL did not end it there; here nothing can be done about it any more.
        self._over.set_result(KILLED if last.code is None else last.code)
        if self._on_end is not None:
            self._on_end(self)

    def lost(self, why: str) -> None:
        """It is gone, or out of reach, through no fault of its own."""
        self.ended(Ended(key=self.key, code=KILLED, cause=why, oom=False))

    def refuse(self, why: str) -> None:
        """It is of no use."""
        self._end(kindly=False)
        self.ended(Ended(key=self.key, code=FAILED, cause=why, oom=False))

    def look(self, now_s: float, *, reaches: bool) -> bool:
        """To be called now and then, with whether there is a connection to it. True once: it has been
        waiting for a place for a while."""
        self._look_at_link(now_s, reaches=reaches)
        if self._asked_to_end:
            if self._answer_by_s is None:
                self._answer_by_s = now_s + END_S
            if now_s > self._answer_by_s:
                self.lost("it was to end, and its node does not answer")
            return False
        tell = self.node is None and not self._waiting_told and now_s > self._deadline_s - WAIT_LEFT_S
        self._waiting_told = self._waiting_told or tell
        return tell

    def is_overdue(self, now_s: float) -> bool:
        return self.node is None and not self._over.done() and now_s > self._deadline_s

    def _look_at_link(self, now_s: float, *, reaches: bool) -> None:
        """A connection that is lost does not come back. Ray gets a moment to tell why it is."""
        if reaches:
            self.was_reached = True
        elif self.was_reached:
            if self._lost_s is None:
                self._lost_s = now_s
            elif now_s - self._lost_s > LINK_GRACE_S:
                self._end(kindly=False)
                self.lost(self._unconnected())

    def _unconnected(self) -> str:
        where = "" if self.node is None else f" on {self.node.address}"
        if self.was_reached:
            return f"the connection to it{where} is gone"
        return f"it{where} cannot reach the server at {self.server}"

    def _end(self, *, kindly: bool) -> None:
        if self._over.done():
            return
        self._asked_to_end = True
        if not self._order(End(key=self.key, kindly=kindly)):
            self.lost("the connection to the Ray cluster is lost")
