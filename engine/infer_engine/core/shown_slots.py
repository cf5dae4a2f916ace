"""How many requests a server that we did not write runs at once, where it does not say: its queue shows it.

Whoever waits inside it waits without a reason, out of turn, and cannot be taken elsewhere. So what is sent
there ends where its queue begins.
"""

from collections import deque

#: Looks in a row with a queue and no more running than in the first of them: until then it may be filling.
LOOKS = 3
#: After so long it is tried whether there is room for more; each time that there is not doubles it, up to.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
#: What is tried: so much more at once, at least one.
GROWTH = 0.25


class ShownSlots:
    """``most`` is None until a queue was seen. ``look`` is called with every reading, once a second."""

    def __init__(self) -> None:
        self.most: int | None = None
        #: Running there, in the looks of the present queue.
        self._queued: deque[int] = deque(maxlen=LOOKS)
        self._pause_s = FIRST_PAUSE_S
        self._try_s = 0.0
        #: More was let in since the last queue, and none came of it yet.
        self._trying = False

    def look(
        self, *, running: int | None, waiting: int | None, in_flight: int, decoding: int, now_s: float
    ) -> int | None:
        """``running`` and ``waiting`` are the server's words, everybody's requests; ``in_flight`` ours that
        are there, ``decoding`` those of them that have a token, and so run whatever it says. Returns
        ``most``."""
        if running is None or waiting is None or running < 1 or waiting < 0:
            self._queued.clear()  # not told, or asleep: nothing is learned
        elif waiting:
            self._see_queue(running, waiting, in_flight, decoding, now_s)
        else:
            self._queued.clear()
            self._see_room(in_flight, now_s)
        return self.most

    def _see_queue(self, running: int, waiting: int, in_flight: int, decoding: int, now_s: float) -> None:
        if not in_flight:
            self._queued.clear()  # others' requests alone: how many of ours it would run is not shown
            return
        self._queued.append(running)
        if len(self._queued) < LOOKS or max(self._queued) > self._queued[0]:
            return
        share = in_flight / max(in_flight, running + waiting)
        self.most = max(1, decoding, min(in_flight, round(running * share)))
        if self._trying:
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
        self._trying = False
        self._try_s = now_s + self._pause_s

    def _see_room(self, in_flight: int, now_s: float) -> None:
        """All that may be there is, and none of it waits."""
        if self.most is None or in_flight < self.most or now_s < self._try_s:
            return
        if self._trying:
            self._pause_s = FIRST_PAUSE_S  # the last time there was room
        self._trying = True
        self.most += max(1, int(self.most * GROWTH))
        self._try_s = now_s + LOOKS
