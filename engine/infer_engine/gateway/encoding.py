"""Tokenizing without holding up the streams that are open."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from infer_engine.gateway.settings import GatewaySettings
from infer_engine.gateway.turns import Turns

#: Up to this many characters tokenizing takes less than handing it to a thread.
INLINE_CHARS = 2_048

T = TypeVar("T")


class EncodingDesk:
    """Small work is done in place; large work in threads, few at once, and a bounded number waiting."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._most_waiting = settings.max_tokenizer_waiting
        self._turns = Turns(
            settings.tokenizer_threads,
            settings.max_tokenizer_waiting,
            "too many long prompts are being tokenized",
        )

    @property
    def queue(self) -> tuple[int, int]:
        """How many wait for a thread now, and how many may."""
        return self._turns.waiting, self._most_waiting

    async def run(self, work: Callable[[], T], chars: int) -> T:
        """``work()``, whose size is ``chars``. Raise ApiError (503) when too much of it waits already."""
        if chars <= INLINE_CHARS:
            return work()
        return await asyncio.shield(await self._turns.start(work))
