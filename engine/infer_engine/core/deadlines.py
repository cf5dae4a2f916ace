"""Who must have ended by when."""

from heapq import heapify, heappop, heappush

from infer_engine.core.request import Request

#: So many entries of the ended are kept before anybody looks for them.
MOST_ENDED = 64


class Deadlines:
    """Who ended without reaching the deadline is forgotten late, but never more of them are kept than twice
    the ``live``."""

    def __init__(self, live: dict[str, Request]) -> None:
        self._live = live
        self._serial = 0
        #: A heap. The serial number keeps requests from being compared.
        self._entries: list[tuple[float, int, Request]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, request: Request) -> None:
        """A live request; one without a deadline is not kept."""
        if request.deadline_s is None:
            return
        if len(self._entries) > MOST_ENDED + 2 * len(self._live):
            self._entries = [entry for entry in self._entries if self._is_live(entry[2])]
            heapify(self._entries)
        self._serial += 1
        heappush(self._entries, (request.deadline_s, self._serial, request))

    def have_passed(self, now_s: float) -> bool:
        """Whether somebody's may have; also of one who ended since."""
        return bool(self._entries) and self._entries[0][0] <= now_s

    def take_passed(self, now_s: float) -> list[Request]:
        """The live ones whose deadline is ``now_s`` or earlier, the earliest first; each only once."""
        passed: list[Request] = []
        while self.have_passed(now_s):
            request = heappop(self._entries)[2]
            if self._is_live(request):
                passed.append(request)
        return passed

    def _is_live(self, request: Request) -> bool:
        # Who was handed back may have come again, as another request of the same id.
        return self._live.get(request.id) is request
