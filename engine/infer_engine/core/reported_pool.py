"""The KV memory of a server that we did not write: what it says is in use, and what we sent it since.

It tells a figure now and then, late; between two of them our own books go on. Both never count the same thing
twice: what we held when it told is in its figure, what was added or let go since then is added or taken off.
"""

from collections import deque
from collections.abc import Sequence

from infer_engine.core.blocks import BlockPool

#: A figure may leave out what was sent so many seconds before it was asked for: servers count late.
LAG_S = 2.0
#: Figures within that time that are remembered.
MOST_REPORTS = 64


class ReportedPool(BlockPool):
    """``total`` blocks of ``block_size`` tokens. Blocks are handed out for our own books alone, by
    ``take`` as many as are asked for: where the server shares a beginning between requests it holds less than
    we count.

    ``used`` is at most ``total``: the server's last figure and what we added or let go since, at least what
    it may not have counted yet; without any figure our own books. While what the server said last is too old
    to be believed nothing is ``available``.
    """

    def __init__(self, total: int, block_size: int) -> None:
        super().__init__(total, block_size)
        self.free_list = []
        self.ref_counts = []
        #: Blocks of our own requests.
        self.ours = 0
        #: What the server said last, and what we held then; None where it tells nothing.
        self.reported: int | None = None
        self._ours_then = 0
        self._reported_cached = 0
        #: Blocks of our requests whose prompts the server has not computed: it counts them as it goes.
        self._promised = 0
        self.stale = False
        #: When the last figures came, and what we held then.
        self._reports: deque[tuple[float, int]] = deque(maxlen=MOST_REPORTS)

    # --- what the server says ------------------------------------------------------------------------------

    def report(self, used: int | None, cached: int | None, now_s: float) -> None:
        """Blocks in use, and blocks kept for whoever begins alike, as the server has just told; None for what
        it does not tell. What cannot be is as good as not told."""
        if used is not None and used < 0:
            used = None
        self.reported = None if used is None else min(used, self.total)
        self._reported_cached = max(0, cached or 0)
        self._ours_then = self.ours
        self._reports.append((now_s, self.ours))
        while len(self._reports) > 1 and self._reports[1][0] <= now_s - LAG_S:
            self._reports.popleft()
        self.stale = False
        self._settle()

    def promise(self, blocks: int) -> None:
        """So many of ours are of prompts that are computed just now, or wait for it there."""
        self._promised = blocks
        self._settle()

    def grow_stale(self) -> None:
        """Nothing was heard for too long: until it is, the server counts as full."""
        self.stale = True

    def _settle(self) -> None:
        self.used = min(self.total, self._believed())

    def _believed(self) -> int:
        if self.reported is None:
            return self.ours
        unseen = self.ours - min((ours for _, ours in self._reports), default=0)
        # Who was promised room may have left since.
        promised = min(self._promised, self.ours)
        return max(0, self.reported + self.ours - self._ours_then, unseen, promised)

    # --- what we hold --------------------------------------------------------------------------------------

    @property
    def cached(self) -> int:
        return min(self._reported_cached, self.total - self.used)

    @property
    def free(self) -> int:
        return self.total - self.used - self.cached

    @property
    def available(self) -> int:
        return 0 if self.stale else self.total - self.used

    def allocate(self, count: int) -> list[int] | None:
        return None if count > self.available else self.take(count)

    def take(self, count: int) -> list[int]:
        """``count`` more blocks, whether there are that many or not: a sequence that runs over there grows
        without asking us."""
        missing = count - len(self.free_list)
        if missing > 0:
            first = len(self.ref_counts)
            self.ref_counts += [0] * missing
            self.free_list += range(first, first + missing)
        ids = [self.free_list.pop() for _ in range(count)]
        for block in ids:
            self.ref_counts[block] = 1
        self.ours += count
        self._settle()
        return ids

    def release(self, ids: Sequence[int]) -> int:
        for block in ids:
            self.ref_counts[block] = 0
        self.free_list += ids
        self.ours -= len(ids)
        self._settle()
        return len(ids)
