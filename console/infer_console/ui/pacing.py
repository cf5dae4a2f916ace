"""When frames are painted and written: as often as the data, the operator and the link to the terminal allow.

What a key changes is painted at once. Data waits for its turn, and where the link has not taken the last
frame it is left out; the next one shows it all.
"""

import time
from collections.abc import Callable
from typing import Protocol

from textual.timer import Timer

from infer_console.terminal.link import QUESTION, Pace
from infer_console.ui.backpressure import queued_writes
from infer_console.ui.painter import Painter
from infer_console.view.look import Look

#: For so long after a key what is painted does not wait: a screen is not put together at once.
URGENT_S = 0.5


class PacedApp(Protocol):
    """What the pacer needs of the app."""

    look: Look

    @property
    def synchronised(self) -> bool: ...

    def frame(self) -> int: ...

    def write(self, text: str) -> None: ...

    def show_pace(self, pace: Pace) -> None: ...

    def set_timer(self, delay: float, callback: Callable[[], None] | None = None) -> Timer: ...


class Pacer:
    """Lives on the event loop's thread."""

    def __init__(self, app: PacedApp, painter: Painter) -> None:
        self._app = app
        self._painter = painter
        self._link = painter.link
        self._painted_s = 0.0
        self._next: Timer | None = None
        #: A frame of data was due and is still to be painted.
        self._owed = False
        #: Until when whatever is painted counts as what a key asked for; and whether some of it is missing.
        self._urgent_s = 0.0
        self._urgent_rest = False
        self._leaving = False

    @property
    def measured(self) -> bool:
        """Whether the terminal answers at all."""
        return self._link.measured

    @property
    def awaiting(self) -> bool:
        """Whether the terminal still owes an answer."""
        return self._link.awaiting

    # --- what happens

    def due(self) -> None:
        """There is something new to show, or time has passed."""
        wait_s = self._painted_s + self._link.period_s - time.monotonic()
        if wait_s > 0:
            if self._next is None:
                self._next = self._app.set_timer(wait_s, self._late)
            return
        queued = queued_writes(self._app)
        if not self._link.ready(queued):
            self._owed = True
            self._link.skip(queued)
            self._app.look.skipped_frames += 1
            return
        self._owed = False
        if not self._app.frame():
            self.flush()

    def _late(self) -> None:
        self._next = None
        self.due()

    def beat(self) -> None:
        """Once a second: the clock goes on, and an answer that is overdue is asked for again."""
        now_s = time.monotonic()
        self._app.show_pace(self._link.pace(now_s))
        if self._link.asks_again(now_s, queued_writes(self._app)):
            self._app.write(QUESTION)
        self.due()

    def painted(self) -> None:
        """A frame is being painted now, whoever asked for it."""
        self._painted_s = time.monotonic()

    def pressed(self) -> None:
        """The operator pressed a key: what comes of it does not wait for its turn."""
        self._urgent_s = time.monotonic() + URGENT_S

    def answered(self, at_s: float) -> None:
        """The terminal has shown everything up to a question."""
        self._link.answered(at_s)
        if self._leaving:
            return
        if self._urgent and not self._painter.complete:
            self.flush()
        if self._owed or not self._painter.complete:
            self.due()

    def flush(self) -> None:
        """Write what the compositor rendered, as far as the link takes it now."""
        if self._leaving:
            return
        urgent = self._urgent
        complete = self._painter.flush(
            self._app.write,
            queued=queued_writes(self._app),
            urgent=urgent,
            synchronised=self._app.synchronised,
        )
        self._urgent_rest = urgent and not complete

    @property
    def _urgent(self) -> bool:
        return self._urgent_rest or time.monotonic() < self._urgent_s

    def leave(self) -> None:
        """Nothing is drawn any more, so no more is asked."""
        self._leaving = True
