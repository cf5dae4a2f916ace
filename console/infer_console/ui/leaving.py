"""Leaving the terminal as it was, whatever holds the program up.

Textual's own way out waits for the terminal to take everything still queued; a terminal that has stopped
reading would hold it for ever. So a limit is set when leaving begins, after which the essentials are written
without waiting and the process ends.
"""

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from infer_console.terminal.attention import PUT_TITLE_BACK

#: A terminal that takes nothing holds the exit for this long; a machine that is merely slow for so long.
LIMIT_S, SLOW_LIMIT_S = 0.75, 5.0
#: Few looks: each takes its turn on a machine that has much to do.
LOOK_S = 0.25
#: Scroll the whole screen, leave the alternate one, show the cursor, wrap lines, no paste, focus, mouse or
#: keyboard modes, plain colours.
RESET = (
    b"\x1b[?2026l\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?2048l"
    b"\x1b[?7h\x1b[r\x1b[?1049l\x1b[?25h\x1b[0m"
)


class TerminalGuard:
    """Use as a context manager around the app's run. ``leave`` starts the clock; the end of the block stops
    it."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._attributes: list[Any] | None = None
        #: The window's title as it was is on the terminal's stack.
        self.title_kept = False

    def __enter__(self) -> Self:
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def leave(self, status: int, stuck: Callable[[], bool]) -> None:
        """The program is on its way out. It ends by force with ``status`` when the terminal has been
        ``stuck`` at every look up to the limit, or after the longer limit for whatever reason. Returns at
        once; may be called from a signal handler."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, args=(status, stuck), name="terminal-guard", daemon=True
            )
            self._thread.start()

    def _watch(self, status: int, stuck: Callable[[], bool]) -> None:
        waited_s = stuck_s = 0.0
        while stuck_s < LIMIT_S and waited_s < SLOW_LIMIT_S:
            if self._over.wait(LOOK_S):
                return
            waited_s += LOOK_S
            stuck_s = stuck_s + LOOK_S if stuck() else 0.0
        self.restore()
        os._exit(status)

    def restore(self) -> None:
        """Put the terminal right without waiting for it."""
        with contextlib.suppress(termios.error, OSError, ValueError):
            # A description of its own: the flag on the shared one would outlive us in the shell.
            terminal = os.open(os.ttyname(0), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                termios.tcflush(terminal, termios.TCOFLUSH)
                os.write(terminal, RESET + (PUT_TITLE_BACK.encode() if self.title_kept else b""))
            finally:
                os.close(terminal)
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)


class EndingSignals:
    """SIGTERM, SIGHUP and SIGQUIT end the console; afterwards the handlers are what they were.

    Plain handlers rather than the event loop's: they run even while the loop waits for a stalled terminal.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def install(self, end: Callable[[int], None]) -> None:
        """``end`` gets the exit status 128 + signal. Only the main thread can have handlers; elsewhere
        nothing happens."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                self._before[number] = signal.signal(number, lambda number, _frame: end(128 + number))

    def remove(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)
