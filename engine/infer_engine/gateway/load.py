"""How loaded the gateway itself is: open connections, and how late its event loop runs."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from infer_engine.protocol import GatewayStatus

#: How often the lag is measured, and over how many measurements the worst is reported: 5 s.
PERIOD_S = 0.25
WINDOW = 20


class GatewayLoad:
    """``connections`` asks the listener. The lag is the worst of the last seconds: by how much a timer was
    late."""

    def __init__(self, connections: Callable[[], int] | None = None) -> None:
        self._connections = connections
        self._lags_s: deque[float] = deque(maxlen=WINDOW)
        self._task: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int | None:
        return None if self._connections is None else self._connections()

    @property
    def loop_lag_s(self) -> float | None:
        """None until the first measurement."""
        return max(self._lags_s) if self._lags_s else None

    def start(self) -> None:
        """Begin measuring; ``close`` ends it."""
        if self._task is None:
            self._task = asyncio.create_task(self._measure())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    def status(self, url: str | None) -> GatewayStatus:
        return GatewayStatus(url=url, connections=self.connections, loop_lag_s=self.loop_lag_s)

    async def _measure(self) -> None:
        while True:
            due_s = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self._lags_s.append(max(0.0, time.monotonic() - due_s))
