"""Keeping what was: the flight recorder and the history run for as long as the server does."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from infer_engine.control.history import HistoryKeeper, interval_s
from infer_engine.control.recorder import Recorder
from infer_engine.protocol import Status

log = logging.getLogger(__name__)


class Keeping:
    """Owns the two tasks, between ``start`` and ``close``. ``recorder`` None: nothing is recorded."""

    def __init__(self, recorder: Recorder | None, replicas: int, status: Callable[[], Status]) -> None:
        self.recorder = recorder
        self.history = HistoryKeeper(interval_s(replicas), time.time)
        self._status = status
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._sample(), name="history"))
        if self.recorder is not None:
            self._tasks.append(asyncio.create_task(self.recorder.run(), name="recorder"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def _sample(self) -> None:
        while True:
            try:
                self.history.sample(self._status())
            except Exception:
                log.exception("a sample of the history failed; the next one is due")
            await asyncio.sleep(self.history.sample_s)
