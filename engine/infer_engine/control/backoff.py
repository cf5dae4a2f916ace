"""How often somebody may show a wrong token."""

from collections import OrderedDict, deque
from collections.abc import Callable

#: Wrong tokens per source within the window; the next ones are answered 429.
MAX_FAILURES = 10
WINDOW_S = 60.0
#: Sources that are remembered; the one that failed least lately is forgotten first.
MAX_SOURCES = 4_096


class FailureLog:
    """``now`` gives monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def failed(self, source: str) -> float | None:
        """Note a failure. None while the source may go on, else after how many seconds it may try again."""
        now_s = self._now()
        times = self._failures.setdefault(source, deque(maxlen=MAX_FAILURES))
        self._failures.move_to_end(source)
        if len(self._failures) > MAX_SOURCES:
            self._failures.popitem(last=False)
        while times and now_s - times[0] >= WINDOW_S:
            times.popleft()
        if len(times) >= MAX_FAILURES:
            return times[0] + WINDOW_S - now_s
        times.append(now_s)
        return None
