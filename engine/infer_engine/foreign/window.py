"""Looks at one row over the last minute: rates, percentiles, progress, and whether its server began anew."""

from collections import deque

from infer_engine.foreign.estimate import since
from infer_engine.foreign.page import Buckets
from infer_engine.foreign.reading import Counts

#: Percentiles are of so long, rates of so long: servers count tokens in jumps.
PERCENTILES_S, RATE_S = 60.0, 10.0
MAX_LOOKS = 128


class Window:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Counts]] = deque(maxlen=MAX_LOOKS)
        self._moved_s: float | None = None
        #: Each counter as it was told last: a server that loads answers and tells none.
        self._told: dict[str, float] = {}

    def look(self, counts: Counts, now_s: float) -> bool:
        """Add a look; True when the counters began anew, after which what was before counts no more."""
        restarted = _fell(self._told, counts.counters)
        if restarted:
            self.forget()
        before = self._looks[-1][1] if self._looks else None
        self._told.update(counts.counters)
        if before is None or (before.counters, before.live) != (counts.counters, counts.live):
            self._moved_s = now_s
        self._looks.append((now_s, counts))
        while len(self._looks) > 2 and now_s - self._looks[1][0] >= PERCENTILES_S:
            self._looks.popleft()
        return restarted

    def forget(self) -> None:
        self._looks.clear()
        self._told.clear()

    def rate(self, name: str, over_s: float = RATE_S) -> float | None:
        """Per second; None before two looks were had."""
        if len(self._looks) < 2:
            return None
        now_s, newest = self._looks[-1]
        then_s, oldest = next(
            look for look in self._looks if now_s - look[0] <= over_s or look is self._looks[-2]
        )
        new, old = newest.live.get(name), oldest.live.get(name)
        if new is None or old is None:
            new, old = newest.counters.get(name), oldest.counters.get(name)
        if new is None or old is None or now_s <= then_s:
            return None
        return max(0.0, new - old) / (now_s - then_s)

    def observed(self, name: str) -> Buckets:
        """What a histogram grew by over the last minute; empty where nothing is known of it."""
        if len(self._looks) < 2:
            return {}
        newest, oldest = self._looks[-1][1], self._looks[0][1]
        return since(newest.histograms.get(name, {}), oldest.histograms.get(name, {}))

    def still_s(self, now_s: float) -> float | None:
        """For how long no counter has moved; None where there is none, or it was looked at once."""
        if len(self._looks) < 2 or not self._looks[-1][1].counters or self._moved_s is None:
            return None
        return now_s - self._moved_s


def _fell(before: dict[str, float], now: dict[str, float]) -> bool:
    return any(now.get(name, value) < value for name, value in before.items())
