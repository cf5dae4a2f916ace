"""What the server's clock shows, as its messages tell: the operator's machine may show something else."""

#: Clocks that differ by less are the same: messages take their time.
AGREE_S = 2.0
#: Messages that come later than the ones before them are late; the clock was set back when all are, for this
#: long.
PATIENCE_S = 5.0


class ServerClock:
    """``now_s`` is a clock of ours without jumps, everything else Unix seconds."""

    def __init__(self) -> None:
        #: What the server's clock shows more than ``now_s``; None before it said anything.
        self._ahead_s: float | None = None
        #: Since when all messages have been behind that, and the least that they were.
        self._behind: tuple[float, float] | None = None

    def told(self, at: float, now_s: float) -> None:
        """A message of ``at`` has come. The one that took the shortest time tells best."""
        ahead_s = at - now_s
        if self._ahead_s is None or ahead_s >= self._ahead_s:
            self._ahead_s, self._behind = ahead_s, None
        elif ahead_s >= self._ahead_s - AGREE_S:
            self._behind = None
        elif self._behind is None:
            self._behind = now_s, ahead_s
        else:
            since_s, most_s = self._behind[0], max(self._behind[1], ahead_s)
            self._behind = since_s, most_s
            if now_s - since_s >= PATIENCE_S:
                self._ahead_s, self._behind = most_s, None

    def at(self, wall: float, now_s: float) -> float:
        """What it shows now; ``wall``, our own clock, where the two agree or nothing was told."""
        if self._ahead_s is None:
            return wall
        told = now_s + self._ahead_s
        return wall if abs(told - wall) < AGREE_S else told
