"""What ends the server: signals, the end of whoever started it, and at last the clock."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from infer_engine.start_error import StartError

log = logging.getLogger(__name__)

STDIN = 0

T = TypeVar("T")


@dataclass(slots=True)
class StopSignal:
    """Asked once, the server drains: ``drain_s`` is how long its requests may go on. Asked twice it ends them
    now, each with an error of its own; asked a third time it goes as it is."""

    drain_s: float
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def on_signal(self, number: int) -> None:
        if self.hurry.is_set():
            log.warning("asked to stop a third time: leaving as it is")
            os._exit(128 + number)
        if self.asked.is_set():
            log.warning("asked to stop twice: ending what still runs")
            self.hurry.set()
        else:
            log.info("asked to stop: what runs may go on for %g s", self.drain_s)
            self.asked.set()

    def on_parent_gone(self) -> None:
        self.drain_s = 0.0
        self.asked.set()
        self.hurry.set()


def hear_signals(stop: StopSignal, *, hangup_stops: bool) -> None:
    """With a file of tokens or keys SIGHUP makes the server read it again, once it listens."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.on_signal, number)
    if not hangup_stops:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # started with nohup
        loop.add_signal_handler(signal.SIGHUP, stop.on_signal, signal.SIGHUP)


def hold_lifeline(stop: StopSignal) -> None:
    """Stop when stdin ends: whoever started this process holds its other end, and is gone however it died."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        try:
            data = os.read(STDIN, 4096)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(STDIN)
            log.info("the lifeline ended: stopping")
            stop.on_parent_gone()

    try:
        loop.add_reader(STDIN, readable)
    except OSError as error:
        raise StartError("--lifeline needs a pipe as stdin") from error


def leave_anyway_after(seconds: float) -> None:
    """A last resort against an end that hangs. The replicas see their pipes close and end by themselves."""

    def leave() -> None:
        log.error("the server did not end in time: leaving")
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


async def unless_stopped(work: Coroutine[Any, Any, T], stop: StopSignal) -> T | None:
    """The result of ``work``, or None when the process was asked to end first; then ``work`` is cancelled."""
    task = asyncio.ensure_future(work)
    asked = asyncio.create_task(stop.asked.wait())
    await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait({task})
    return None
