"""How loaded the gateway itself is: open connections, how late its event loop runs, what memory it takes."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from infer_engine.connections import Connections
from infer_engine.protocol import GatewayStatus

#: How often the lag is measured, and over how many measurements the worst is reported: 10 s.
PERIOD_S = 0.1
WINDOW = 100
#: With fewer connections, what one costs is lost in what everything else does.
FEWEST_TO_TELL = 50


class GatewayLoad:
    """``connections`` asks the listener. The lag is the worst of the last seconds: by how much a timer was
    late."""

    def __init__(
        self, connections: Callable[[], int] | None = None, limits: Connections | None = None
    ) -> None:
        self._connections = connections
        self._limits = limits
        self._lags_s: deque[float] = deque(maxlen=WINDOW)
        #: Set by the gateway that is measured: how many prompts wait to be tokenized, and how many may.
        self.tokenizer: Callable[[], tuple[int, int]] | None = None
        self._rss_at_start_bytes: int | None = None
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
            self._rss_at_start_bytes = rss_bytes()
            self._task = asyncio.create_task(self._measure())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    def status(self, url: str | None) -> GatewayStatus:
        lags_s = sorted(self._lags_s)
        connections, resident = self.connections, rss_bytes()
        queue, most_queued = self.tokenizer() if self.tokenizer is not None else (None, None)
        return GatewayStatus(
            url=url,
            connections=connections,
            loop_lag_s=self.loop_lag_s,
            loop_lag_p50_s=_at(lags_s, 0.50),
            loop_lag_p99_s=_at(lags_s, 0.99),
            refused_connections=None if self._limits is None else self._limits.turned_away,
            max_connections=None if self._limits is None else self._limits.most,
            rss_bytes=resident,
            connection_bytes=self._connection_bytes(connections, resident),
            tokenizer_queue=queue,
            max_tokenizer_queue=most_queued,
        )

    def _connection_bytes(self, connections: int | None, resident: int | None) -> int | None:
        if connections is None or connections < FEWEST_TO_TELL:
            return None
        if resident is None or self._rss_at_start_bytes is None:
            return None
        return max(0, resident - self._rss_at_start_bytes) // connections

    async def _measure(self) -> None:
        while True:
            due_s = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self._lags_s.append(max(0.0, time.monotonic() - due_s))


def rss_bytes() -> int | None:
    """Resident memory of this process; None where Linux does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _at(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
