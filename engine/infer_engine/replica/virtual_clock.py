"""A clock that goes ``speed`` times as fast as the real one, and never past anything that is due.

What happens on it happens exactly when it is due: while a callback runs, ``now()`` is its moment, however
late the machine got to it. So everything measured on this clock is exact, and a machine that cannot keep up
makes the clock slow, not the figures wrong; ``achieved_speed`` says how slow.
"""

import asyncio
import contextlib
import heapq
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

#: Callbacks run for so long before others of the event loop get their turn.
SLICE_S = 0.004
#: What the machine is behind beyond this is not caught up with: the clock goes on from where it is.
MOST_BEHIND_S = 0.25
#: The achieved speed is that of the last few periods of this length.
PERIOD_S = 0.5
PERIODS = 6
#: The clock is looked at this often even when nothing is due.
LONGEST_SLEEP_S = 0.25


class Timer:
    """Something that is due; ``cancel`` may be called at any time."""

    __slots__ = ("_callback", "due_s")

    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        """Once; what was cancelled does nothing."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Simulated seconds, and things that happen at some of them."""

    def now(self) -> float: ...

    def call_at(self, due_s: float, callback: Callable[[], None]) -> Cancellable:
        """Call it then, or as soon as possible when that is past."""
        ...


class PacedClock:
    """Made in the asyncio loop that it lives in from ``start`` to ``stop``. ``real`` is monotonic seconds."""

    def __init__(self, speed: float, real: Callable[[], float] = time.monotonic) -> None:
        self.speed = speed
        self._real = real
        self._now_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._standing = False
        #: Real and simulated moment from which the clock goes on evenly.
        self._anchor = (real(), 0.0)
        self._due: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._marks: deque[tuple[float, float]] = deque([self._anchor], maxlen=PERIODS + 1)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- time ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Simulated seconds since the clock was made. It stands still until whoever runs in the event loop is
        done: what somebody does at once happens at one moment, however long the machine takes."""
        if self._standing:
            return self._now_s
        self._standing = True
        self._loop.call_soon(self._go_on)
        target_s = self._target_s(self._real())
        if self._due and self._due[0][0] < target_s:
            target_s = self._due[0][0]
        if target_s > self._now_s:
            self._now_s = target_s
        return self._now_s

    def _go_on(self) -> None:
        self._standing = False

    def call_at(self, due_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(max(due_s, self._now_s), callback)
        heapq.heappush(self._due, (timer.due_s, next(self._numbers), timer))
        if self._due[0][2] is timer:
            self._woken.set()
        return timer

    @property
    def achieved_speed(self) -> float | None:
        """Simulated seconds per real second over the last few; None before there were any."""
        (real_s, now_s), real_now_s = self._marks[0], self._real()
        if real_now_s - real_s < PERIOD_S:
            return None
        return (self.now() - now_s) / (real_now_s - real_s)

    # --- pace ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        real_s = self._real()
        self._anchor = (real_s, self._now_s)
        self._marks.append(self._anchor)
        self._task = asyncio.create_task(self._run(), name="paced-clock")

    async def stop(self) -> None:
        """Nothing happens on it any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _target_s(self, real_s: float) -> float:
        began_s, from_s = self._anchor
        return from_s + (real_s - began_s) * self.speed

    async def _run(self) -> None:
        while True:
            real_s = self._real()
            if real_s - self._marks[-1][0] >= PERIOD_S:
                self._marks.append((real_s, self.now()))
            if self._run_due(real_s):
                await asyncio.sleep(0)
                continue
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._sleep_s()):
                    await self._woken.wait()

    def _run_due(self, real_s: float) -> bool:
        """Run what is due, for a slice of time at most; whether there was anything."""
        due, target_s = self._due, self._target_s(real_s)
        if not due or due[0][0] > target_s:
            return False
        end_s = real_s + SLICE_S
        while due and due[0][0] <= target_s and self._real() < end_s:
            due_s, _, timer = heapq.heappop(due)
            if due_s > self._now_s:
                self._now_s = due_s
            self._standing = True
            try:
                timer.run()
            except Exception:
                log.exception("what was due at %.6f failed", due_s)
            finally:
                self._standing = False
        if due:
            self._give_up_lag(due[0][0])
        return True

    def _give_up_lag(self, next_due_s: float) -> None:
        real_s = self._real()
        most_s = next_due_s + MOST_BEHIND_S * self.speed
        if self._target_s(real_s) > most_s:
            self._anchor = (real_s, most_s)

    def _sleep_s(self) -> float:
        if not self._due:
            return LONGEST_SLEEP_S
        real_left_s = (self._due[0][0] - self._target_s(self._real())) / self.speed
        return min(LONGEST_SLEEP_S, max(0.0, real_left_s))
