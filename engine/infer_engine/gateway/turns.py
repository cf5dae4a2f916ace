"""Work for threads, few at once, and a bounded number waiting for their turn."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from infer_engine.gateway.errors import ApiError

T = TypeVar("T")


class Turns:
    """``at_once`` threads; ``full`` says what there is too much of when ``most_waiting`` wait already."""

    def __init__(self, at_once: int, most_waiting: int, full: str) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._most_waiting = most_waiting
        self._full = full
        self._waiting = 0
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def waiting(self) -> int:
        return self._waiting

    async def start(self, work: Callable[[], T]) -> asyncio.Task[T]:
        """The task of ``work()``, once it has its turn. Raise ApiError (503) when too much waits already. A
        thread cannot be stopped: whoever waits for it may go (``asyncio.shield``), its turn is taken until it
        ends."""
        if self._waiting >= self._most_waiting:
            raise ApiError(503, self._full, code="overloaded", retry_after_s=1.0)
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        task = asyncio.create_task(asyncio.to_thread(work))
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._turns.release()
        if not task.cancelled():
            task.exception()  # somebody who left does not miss it
