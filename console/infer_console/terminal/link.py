"""How much the link to the terminal bears: the time to the answer of a question that goes out behind every
frame (``CSI 6n``, where is the cursor), and the bytes that were on the way.

The depth of a queue here sees a slow link only when every buffer on the way is full; the answer has been
all the way there and back. The next frame is written when the last one has been answered, with as much idle
time in between as the bytes themselves took. Where a terminal never answers, the queue's depth is all there
is. No clock and no I/O here: times are given, in seconds.
"""

from collections import deque
from typing import Literal, NamedTuple

LinkMode = Literal["slow", "auto", "fast"]
LINK_MODES: tuple[LinkMode, ...] = ("slow", "auto", "fast")

#: Where is the cursor?
QUESTION = "\x1b[6n"
FASTEST_HZ, SLOWEST_HZ = 10.0, 0.5
#: ``--link slow`` starts here, and never draws more often.
SLOW_HZ, SLOW_BYTES = 1.0, 2048
#: Writes that wait for the terminal from which on it is behind (a frame is one).
DEEP = 3
#: What a key asks for may follow a frame that is still on its way, a frame of data may not.
_MOST_UNANSWERED = 2
#: A terminal that has left so many questions unanswered for so long will answer none.
_GIVE_UP_AFTER, _GIVE_UP_S = 3, 3.0
#: After so long without an answer the question is asked again: an answer may have been lost.
ASK_AGAIN_S = 2.0
#: Bytes below which, and a time below which, an answer says nothing about bytes per second.
_LEAST_BYTES, _LEAST_S = 256, 0.02
#: Later answers are those of a link that stood still: after that it is as good as it was before.
_STALL_S = 6.0
#: A frame is never cut to less than this.
LEAST_BUDGET_BYTES = 1024
#: A link that takes more than this needs no budget; a busy machine's delays do not make it narrow.
NARROW_BYTES_PER_S = 16_000
_WINDOW_S = 3.0
_MOST_KEPT = 256


class Pace(NamedTuple):
    """What the terminal was given over the last seconds: frames and bytes a second."""

    hz: float
    bytes_per_s: float


class _Asked(NamedTuple):
    at: float
    size_bytes: int


class LinkBudget:
    """``most_hz`` is the operator's own limit. ``skipped`` counts the frames that were due while the link was
    not ready for one."""

    def __init__(self, mode: LinkMode = "auto", most_hz: float = FASTEST_HZ) -> None:
        self.mode = mode
        ceiling = min(most_hz, SLOW_HZ) if mode == "slow" else most_hz
        self._least_s = 1.0 / ceiling
        #: What the link makes of it; none where it is quick.
        self._link_s = 0.0
        self.skipped = 0
        self._asked: deque[_Asked] = deque(maxlen=8)
        self._asked_s = 0.0
        self._ever_answered = False
        self._unanswered, self._first_asked_s = 0, 0.0
        self._gave_up = False
        self._round_trips: deque[float] = deque(maxlen=20)
        self._bytes_per_s: float | None = None
        self._written: deque[_Asked] = deque(maxlen=_MOST_KEPT)

    # --- what may be written

    @property
    def period_s(self) -> float:
        """From one frame of data to the next, at least."""
        return max(self._least_s, min(self._link_s, 1.0 / SLOWEST_HZ))

    @property
    def asks(self) -> bool:
        """Whether the question goes out behind the next frame."""
        return self.mode != "fast" and not self._gave_up

    @property
    def measured(self) -> bool:
        """Whether the terminal answers; else all that is known of it is the queue."""
        return self._ever_answered and self.asks

    @property
    def awaiting(self) -> bool:
        """Whether an answer may still come."""
        return bool(self._asked)

    @property
    def budget_bytes(self) -> int | None:
        """What a frame of data may hold; None where there is no need to count."""
        if self.mode == "fast":
            return None
        if self._bytes_per_s is None or self._bytes_per_s > NARROW_BYTES_PER_S:
            return SLOW_BYTES if self.mode == "slow" else None
        return max(LEAST_BUDGET_BYTES, int(self._bytes_per_s * self.period_s / 2))

    def ready(self, queued: int, urgent: bool = False) -> bool:
        """Whether a frame may be written now; ``queued`` writes have not been taken by the terminal.
        ``urgent`` is what the operator's own key asks for."""
        if queued > DEEP:
            return False
        if not self.measured:
            return True
        return len(self._asked) < (_MOST_UNANSWERED if urgent else 1)

    def skip(self, queued: int) -> None:
        """A frame was due and could not be written."""
        self.skipped += 1
        if not self.measured and queued > DEEP:
            self._link_s = min(max(self._least_s, self._link_s) * 2, 1.0 / SLOWEST_HZ)

    # --- what was written, and what came back

    def written(self, now_s: float, size_bytes: int) -> None:
        """A frame has been handed over, the question behind it if :attr:`asks`."""
        self._written.append(_Asked(now_s, size_bytes))
        if not self.asks:
            self._link_s *= 0.8  # the queue was not deep
            return
        if not self._ever_answered:
            self._first_asked_s = self._first_asked_s or now_s
            self._unanswered += 1
            if self._unanswered > _GIVE_UP_AFTER and now_s - self._first_asked_s > _GIVE_UP_S:
                self._gave_up = True
                self._asked.clear()
                return
        self._asked.append(_Asked(now_s, size_bytes))
        self._asked_s = now_s

    def answered(self, at_s: float) -> None:
        """The terminal has said where its cursor is."""
        self._gave_up = False
        if not self._ever_answered:
            # Which of several questions this is about cannot be told.
            self._ever_answered = True
            while len(self._asked) > 1:
                self._asked.popleft()
        if not self._asked:
            return
        asked = self._asked.popleft()
        took_s = max(0.0, at_s - asked.at)
        if took_s > _STALL_S:
            return
        self._round_trips.append(took_s)
        spent_s = took_s - min(self._round_trips)
        wanted_s = took_s + spent_s
        self._link_s = wanted_s if wanted_s > self._link_s else (self._link_s + wanted_s) / 2
        if spent_s < _LEAST_S:
            self._bytes_per_s = None
        elif asked.size_bytes >= _LEAST_BYTES:
            now_bytes_per_s = asked.size_bytes / spent_s
            known = self._bytes_per_s
            self._bytes_per_s = now_bytes_per_s if known is None else (known + now_bytes_per_s) / 2

    def asks_again(self, now_s: float, queued: int) -> bool:
        """Whether an answer is overdue and the terminal takes what is written: then it may have been lost.
        The caller writes :data:`QUESTION`; the one before counts no more."""
        if not self.measured or queued or not self._asked or now_s - self._asked_s < ASK_AGAIN_S:
            return False
        # The time still counts from the first one: if it was not lost, the link was slow.
        while len(self._asked) > 1:
            self._asked.pop()
        self._asked_s = now_s
        return True

    def pace(self, now_s: float) -> Pace:
        """Of the last seconds."""
        while self._written and self._written[0].at < now_s - _WINDOW_S:
            self._written.popleft()
        return Pace(
            len(self._written) / _WINDOW_S, sum(each.size_bytes for each in self._written) / _WINDOW_S
        )
