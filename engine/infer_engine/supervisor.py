"""Telling systemd how the server does, where systemd started it: ready, alive, about to end."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class Supervisor:
    """``address`` None: nobody wants to know, and all methods do nothing."""

    def __init__(self, address: str | None, watchdog_s: float | None) -> None:
        # A leading @ stands for the NUL of Linux's abstract sockets.
        self._address = address and ("\0" + address[1:] if address.startswith("@") else address)
        self._watchdog_s = watchdog_s
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ) -> "Supervisor":
        """As systemd says it in the environment (sd_notify(3), sd_watchdog_enabled(3))."""
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(
            environment.get("NOTIFY_SOCKET") or None,
            int(watchdog_us) / 1e6 if mine and watchdog_us.isdigit() and int(watchdog_us) > 0 else None,
        )

    def ready(self) -> None:
        """From now on the loop also says regularly that it turns, if systemd asked for that."""
        self._say("READY=1")
        if self._address and self._watchdog_s is not None:
            self._task = asyncio.create_task(self._keep_alive(self._watchdog_s / 2), name="watchdog")

    def stopping(self) -> None:
        self._say("STOPPING=1")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _keep_alive(self, every_s: float) -> None:
        while True:
            self._say("WATCHDOG=1")
            await asyncio.sleep(every_s)

    def _say(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
                datagrams.setblocking(False)
                datagrams.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("systemd does not hear: %s", error)
