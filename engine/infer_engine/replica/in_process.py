"""Launcher and link in one, for replicas that live in the server's process: messages are handed over as they
are."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from infer_engine.replica.messages import FromReplica, ToReplica
from infer_engine.replica.server_link import OnMessage
from infer_engine.replica.socket_reader import Sent

log = logging.getLogger(__name__)

#: Exit codes: of a life that was killed, as of a process, and of one that failed.
KILLED, FAILED = -9, 1


class Inmate(Protocol):
    """One life of a replica in this process."""

    @property
    def identity(self) -> bytes: ...

    def hear(self, message: ToReplica) -> bool:
        """False when it has not read for long."""
        ...


class Life(ABC):
    """What the fleet sees of a life in this process: it has no process that could lack memory."""

    @abstractmethod
    async def wait(self) -> int: ...

    @abstractmethod
    def _end(self, code: int) -> None: ...

    def hang_up(self) -> None:
        self._end(KILLED)

    def kill(self) -> None:
        self._end(KILLED)

    async def stop(self) -> int | None:
        self._end(0)
        return await self.wait()

    def cpu_s(self) -> float | None:
        return None

    def cause(self) -> str | None:
        return None

    def oom_killed(self) -> bool | None:
        return False


R = TypeVar("R", bound=Inmate)


class InProcess(Generic[R]):
    """Give ``link`` to a fleet."""

    def __init__(self) -> None:
        self.by_identity: dict[bytes, R] = {}
        self._on_message: OnMessage | None = None
        self._on_batch_end: Callable[[], None] | None = None
        self._batch_end_due = False

    def link(self, _directory: Path, on_message: OnMessage, on_batch_end: Callable[[], None]) -> "InprocLink":
        self._on_message, self._on_batch_end = on_message, on_batch_end
        return InprocLink(self.send, self.close)

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        replica = self.by_identity.get(peer)
        if replica is None:
            return "unreachable"
        return "sent" if replica.hear(message) else "full"

    def deliver(self, replica: R, message: FromReplica) -> None:
        if self._on_message is None:
            return
        try:
            self._on_message(replica.identity, message)
        except Exception:
            log.exception("handling a %s from %r failed", type(message).__name__, replica.identity)
        if not self._batch_end_due:
            self._batch_end_due = True
            asyncio.get_running_loop().call_soon(self._end_batch)

    def forget(self, replica: R) -> None:
        self.by_identity.pop(replica.identity, None)

    def close(self) -> None:
        self._on_message = self._on_batch_end = None

    def _end_batch(self) -> None:
        self._batch_end_due = False
        if self._on_batch_end is not None:
            self._on_batch_end()


class InprocLink:
    """The server's end, as ``ServerLink`` has it."""

    endpoint = "inproc"
    #: Messages are handed over as they are: none can be malformed.
    malformed = 0

    def __init__(self, send: Callable[[bytes, ToReplica], Sent], close: Callable[[], None]) -> None:
        self._send = send
        self._close = close

    def open(self) -> None:
        """There is nothing to open."""

    def close(self) -> None:
        self._close()

    def send(self, peer: bytes, message: ToReplica) -> Sent:
        return self._send(peer, message)
