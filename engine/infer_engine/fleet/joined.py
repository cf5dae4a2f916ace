"""One replica that joins by itself: the place that is kept for it, and each life of it as the process that a
lifecycle looks after."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infer_engine.fleet.feed import Feed
from infer_engine.fleet.state_change import set_state
from infer_engine.replica.handle import JoinedFrom, ReplicaHandle
from infer_engine.replica.join_messages import EndLife, ToJoiner, Welcome, encode_join
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.tcp_link import TcpLink
from infer_engine.replica.wire import LINK_LOST, identity

#: How long its machine may take to say that its process has ended; then it counts as gone.
GRACE_S = 3.0


@dataclass(slots=True, eq=False)
class Guest:
    """A process that joins, as the server knows it."""

    #: The name of its connection, and its public key.
    route: bytes
    public: bytes
    host: str
    pid: int
    asked: str | None
    link: TcpLink
    seat: "Seat | None" = None

    def tell(self, message: ToJoiner) -> bool:
        return self.link.send_to(self.route, encode_join(message)) == "sent"


class JoinedProcess:
    """One life: ends when its worker has, or when its machine cannot be reached any more."""

    def __init__(self, guest: Guest, incarnation: int, on_end: Callable[[], None]) -> None:
        self.guest = guest
        self.incarnation = incarnation
        self._on_end = on_end
        self._oom: bool | None = None
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self.guest.pid

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def end(self, code: int, *, oom: bool | None = None) -> None:
        if not self._code.done():
            self._oom = oom
            self._code.set_result(code)
            self._on_end()

    def kill(self) -> None:
        self._tell_to_end()

    def _tell_to_end(self) -> bool:
        """False where nobody is left to be told."""
        if self._code.done():
            return False
        return self.guest.tell(EndLife(incarnation=self.incarnation, why="the server has given it up"))

    def hang_up(self) -> None:
        """Nobody waits for it any more, whatever becomes of its worker."""
        self.kill()
        self.end(LINK_LOST)

    async def stop(self) -> int | None:
        """Where it cannot be told, its link's end ends it."""
        if self._tell_to_end():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self.wait()
        self.end(-signal.SIGKILL)
        return await self.wait()

    def log_tail(self) -> str:
        return f"(its log is on {self.guest.host})"

    def cpu_s(self) -> float | None:
        return None

    def cause(self) -> str | None:
        return None

    def oom_killed(self) -> bool | None:
        """By its machine's own word."""
        return self._oom


@dataclass(slots=True)
class Seat:
    """What is kept for a replica between its lives. ``launch`` is what its lifecycle starts it with, once
    ``arrived`` is set."""

    handle: ReplicaHandle
    #: Whose it is: only this key may take it.
    public: bytes
    link: TcpLink
    feed: Feed
    clock: Callable[[], float]
    host: str
    guest: Guest | None = None
    process: JoinedProcess | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    #: Since when nobody is there.
    empty_since_s: float | None = None

    @property
    def taken(self) -> bool:
        return self.process is not None or self.guest is not None

    def take(self, guest: Guest) -> None:
        self.guest, self.host = guest, guest.host
        guest.seat = self
        self.handle.joined = JoinedFrom(guest.host, guest.public)
        self.handle.may_return = True
        self.empty_since_s = None
        self.arrived.set()

    async def launch(self, config: ReplicaConfig, _log_path: Path, _threads: int) -> JoinedProcess:
        guest = self.guest
        self.arrived.clear()
        if guest is None:
            raise OSError("whoever joined has left again")
        name = identity(config.replica, config.incarnation)
        process = JoinedProcess(guest, config.incarnation, lambda: self._ended(name))
        keys = self.link.issue(name, guest.public)
        self.process = process
        self.handle.error = None
        self.handle.unready_since_s = self.clock()
        set_state(self.handle, self.feed, "starting", message=f"it joined from {guest.host}")
        if not guest.tell(
            Welcome(replica=config.replica, incarnation=config.incarnation, ticket=keys.ticket)
        ):
            process.end(LINK_LOST)
            set_state(self.handle, self.feed, "failed", message="it was gone again at once")
        return process

    def look(self) -> None:
        """End the life whose machine cannot be reached any more."""
        process, guest = self.process, self.guest
        if process is None or guest is None:
            return
        lost_worker = self.handle.heard_s is not None and not self.link.reaches(self.handle.identity)
        if lost_worker and self.handle.identity == identity(self.handle.id, process.incarnation):
            self.handle.error = "the connection to it is gone"
            process.hang_up()

    def lose(self, why: str) -> None:
        """Whoever sat here is gone."""
        process, self.guest = self.process, None
        if process is not None:
            self.handle.error = self.handle.error or why
            process.hang_up()
        elif self.empty_since_s is None:
            self.empty_since_s = self.clock()
            self.arrived.clear()

    def _ended(self, name: bytes) -> None:
        self.link.withdraw(name)
        self.process = None
        if self.guest is not None:
            self.guest.seat = None
        self.guest = None
        self.empty_since_s = self.clock()
