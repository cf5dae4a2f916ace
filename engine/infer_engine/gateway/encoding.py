"""Tokenizing without holding up the streams that are open."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from infer_engine.gateway.errors import ApiError
from infer_engine.gateway.settings import GatewaySettings

#: Up to this many characters tokenizing takes less than handing it to a thread.
INLINE_CHARS = 2_048

T = TypeVar("T")


class EncodingDesk:
    """Small work is done in place; large work in threads, few at once, and a bounded number waiting."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._turns = asyncio.Semaphore(settings.tokenizer_threads)
        self._most_waiting = settings.max_tokenizer_waiting
        self._waiting = 0
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Callable[[], T], chars: int) -> T:
        """``work()``, whose size is ``chars``. Raise ApiError (503) when too much of it waits already."""
        if chars <= INLINE_CHARS:
            return work()
        if self._waiting >= self._most_waiting:
            raise ApiError(
                503, "too many long prompts are being tokenized", code="overloaded", retry_after_s=1.0
            )
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        task = asyncio.create_task(asyncio.to_thread(work))
        self._running.add(task)
        task.add_done_callback(self._done)
        # A thread cannot be stopped: whoever waits for it may go, its turn is taken until it ends.
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._turns.release()
        if not task.cancelled():
            task.exception()  # somebody who left does not miss it
