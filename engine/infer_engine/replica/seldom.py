"""How often something may be said that others can bring about as often as they like."""

from collections import deque


class Seldom:
    """``most`` times within ``period_s``. ``left_out`` is how often it was not said since it last was."""

    def __init__(self, most: int, period_s: float) -> None:
        self._period_s = period_s
        self._said_s: deque[float] = deque(maxlen=most)
        self._left_out = 0

    def may(self, now_s: float) -> bool:
        said_s = self._said_s
        if len(said_s) == said_s.maxlen and now_s - said_s[0] < self._period_s:
            self._left_out += 1
            return False
        said_s.append(now_s)
        return True

    def left_out(self) -> int:
        """Asked when it is said: it counts anew from then."""
        left_out, self._left_out = self._left_out, 0
        return left_out
