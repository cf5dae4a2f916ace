"""Telling readers of their new tokens a few at a time: a step can have hundreds, several steps end at
once, and while all their readers run the event loop does nothing else."""

import asyncio
from collections import deque
from collections.abc import Sequence

from infer_engine.fleet.generation import Generation

#: Readers in one turn of the loop: a few milliseconds.
AT_ONCE = 32


class Waker:
    """What waits for its turn is bounded by the tokens that replicas may send before they must be acked."""

    def __init__(self) -> None:
        self._waiting: deque[Generation] = deque()

    def wake(self, generations: Sequence[Generation]) -> None:
        """In this order, and behind those that wait already."""
        if not self._waiting and len(generations) <= AT_ONCE:
            for generation in generations:
                generation.wake()
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.extend(generations)

    def _turn(self) -> None:
        for _ in range(min(AT_ONCE, len(self._waiting))):
            self._waiting.popleft().wake()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
