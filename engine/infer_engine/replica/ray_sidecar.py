"""The Ray driver as a process beside the server: started, spoken with line by line, and ended."""

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from infer_engine.replica.ray_messages import (
    MAX_LINE_BYTES,
    Connect,
    Connected,
    FromDriver,
    NotConnected,
    ToDriver,
)

#: How long the cluster may take to let it in. Ray itself would go on trying for minutes.
CONNECT_S = 60.0
#: How long it may take to end once its stdin did.
END_S = 3.0
#: Lines kept of what it writes to stderr.
TAIL_LINES = 8
#: Orders that it has not read yet, in bytes: beyond this it counts as hung.
MOST_UNREAD_BYTES = 16 << 20
AUTH_MODE = "RAY_AUTH_MODE"

#: Starts the driver's process, with pipes as stdin, stdout and stderr.
SpawnDriver = Callable[[], Awaitable[asyncio.subprocess.Process]]


class SidecarError(Exception):
    """``str()`` is one line: why there is no driver with a connection."""


def wants_auth() -> bool:
    """Token authentication is on unless the operator has turned it off for Ray."""
    return os.environ.get(AUTH_MODE, "token").lower() == "token"


async def spawn_driver() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "infer_engine.replica.ray_driver",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
        env={AUTH_MODE: "token", **os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        start_new_session=True,
    )


class Driver(Protocol):
    """A connection to a cluster, whatever that is made of."""

    def say(self, order: ToDriver) -> bool:
        """False when it is gone, or does not read."""
        ...

    def messages(self) -> AsyncIterator[FromDriver]:
        """Until it is gone."""
        ...

    async def close(self) -> str:
        """End it; its last words."""
        ...


#: Takes the cluster's address and the namespace; SidecarError when there is no way in.
Begin = Callable[[str, str], Awaitable[tuple[Driver, Connected]]]


async def begin_sidecar(address: str, namespace: str) -> tuple[Driver, Connected]:
    return await Sidecar.begin(spawn_driver, address, namespace)


class Sidecar:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise SidecarError("the driver was started without pipes")
        self._process = process
        self._orders, self._answers, self._errors = process.stdin, process.stdout, process.stderr
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._tail_task = asyncio.create_task(self._read_tail(), name="ray-driver-stderr")

    @classmethod
    async def begin(cls, spawn: SpawnDriver, address: str, namespace: str) -> "tuple[Sidecar, Connected]":
        """A driver that is connected. SidecarError, with nothing left running, when that is not to be had."""
        try:
            sidecar = cls(await spawn())
        except OSError as error:
            raise SidecarError(f"the driver could not be started: {error}") from None
        try:
            sidecar.say(Connect(address=address, namespace=namespace, check_auth=wants_auth()))
            try:
                async with asyncio.timeout(CONNECT_S):
                    answer = await sidecar.next_message()
            except TimeoutError:
                raise SidecarError(f"no connection within {CONNECT_S:g} s{sidecar._last_words()}") from None
            if isinstance(answer, NotConnected):
                raise SidecarError(answer.error + (await sidecar._why() if answer.see_log else ""))
            if not isinstance(answer, Connected):
                await sidecar._hear_out()
                raise SidecarError(f"the driver ended{sidecar._last_words()}")
        except BaseException:
            await sidecar.close()
            raise
        return sidecar, answer

    def say(self, order: ToDriver) -> bool:
        """False when it is gone, or does not read."""
        transport = self._orders.transport
        if transport.is_closing() or transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            return False
        self._orders.write(msgspec.json.encode(order) + b"\n")
        return True

    async def next_message(self) -> FromDriver | None:
        """None at its end. SidecarError when it says what is no message."""
        try:
            line = await self._answers.readline()
            return msgspec.json.decode(line, type=FromDriver) if line else None
        except (ValueError, msgspec.DecodeError, OSError) as error:
            raise SidecarError(f"the driver said what nobody understands: {error}") from None

    async def messages(self) -> AsyncGenerator[FromDriver]:
        """Until its end, or until it talks nonsense."""
        with contextlib.suppress(SidecarError):
            while (message := await self.next_message()) is not None:
                yield message

    async def close(self) -> str:
        """End it; its last words."""
        self._orders.close()
        for harder in (self._process.kill, None):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._process.wait()
                break
            if harder is not None:
                harder()
        await self._hear_out()
        self._tail_task.cancel()
        return f"the driver ended with {self._process.returncode}{self._last_words()}"

    async def _why(self) -> str:
        """The last that its log says, once it has ended: Ray's exceptions tell that it did not work, not
        why."""
        await self._hear_out()
        last = self._tail[-1] if self._tail else ""
        return f" ({last.partition('] ')[2]})" if last.startswith("[") else ""

    async def _hear_out(self) -> None:
        """All that it wrote to stderr, once it has ended: the end of one pipe may come before the other's."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.shield(self._tail_task)

    def _last_words(self) -> str:
        return f": {self._tail[-1]}" if self._tail else ""

    async def _read_tail(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # a line without an end is no word
            while line := await self._errors.readline():
                if text := line.decode(errors="replace").strip():
                    self._tail.append(text[:300])
