"""When it was that the fleet's clock showed something. A simulated clock falls behind on a machine that is
too slow for it, so its pace alone does not tell."""

from bisect import bisect
from collections import deque

#: Of the last hour, one a second: a few of the oldest requests' beginnings are reckoned from there.
KEPT = 3_600
APART_S = 1.0


class Moments:
    """Seconds of the fleet's clock, and the Unix seconds that belonged to them. ``pace`` is how many of the
    one there are in one of the other, where nothing is known better."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._clock: deque[float] = deque(maxlen=KEPT)
        self._wall: deque[float] = deque(maxlen=KEPT)

    def __len__(self) -> int:
        return len(self._clock)

    def note(self, clock_s: float, wall: float) -> None:
        """It is now. Cheap; what comes too often is left out."""
        if not self._clock or (wall - self._wall[-1] >= APART_S and clock_s > self._clock[-1]):
            self._clock.append(clock_s)
            self._wall.append(wall)

    def at(self, clock_s: float, now_s: float, wall: float) -> float:
        """When it was ``clock_s``; ``now_s`` and ``wall`` are now."""
        if clock_s >= now_s or not self._clock:
            return wall - (now_s - clock_s) / self._pace
        after = bisect(self._clock, clock_s)
        if after == 0:
            return self._wall[0] - (self._clock[0] - clock_s) / self._pace
        before_s, before = self._clock[after - 1], self._wall[after - 1]
        next_s, following = now_s, wall
        if after < len(self._clock):
            next_s, following = self._clock[after], self._wall[after]
        return before + (following - before) * (clock_s - before_s) / (next_s - before_s)
