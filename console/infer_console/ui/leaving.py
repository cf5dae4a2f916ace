"""Leaving the terminal as it was, whatever holds the program up.

Textual's own way out waits for the terminal to take everything still queued; a terminal that has stopped
reading would hold it for ever. So a limit is set when leaving begins, after which the essentials are written
without waiting and the process ends.
"""

import contextlib
import os
import sys
import termios
import threading
from types import TracebackType
from typing import Any, Self

LIMIT_S = 1.0
#: Leave the alternate screen, show the cursor, wrap lines, no paste, focus, mouse or keyboard modes, plain
#: colours.
RESET = (
    b"\x1b[?2026l\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?2048l"
    b"\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"
)


class TerminalGuard:
    """Use as a context manager around the app's run. ``leave`` starts the clock; the end of the block stops
    it."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._timer: threading.Timer | None = None
        self._attributes: list[Any] | None = None

    def __enter__(self) -> Self:
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def leave(self, status: int) -> None:
        """The program is on its way out: within the limit by itself, else by force with ``status``."""
        if self._timer is None:
            self._timer = threading.Timer(self._limit_s, self._force, (status,))
            self._timer.daemon = True
            self._timer.start()

    def _force(self, status: int) -> None:
        self.restore()
        os._exit(status)

    def restore(self) -> None:
        """Put the terminal right without waiting for it."""
        with contextlib.suppress(termios.error, OSError, ValueError):
            # A description of its own: the flag on the shared one would outlive us in the shell.
            terminal = os.open(os.ttyname(0), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                os.write(terminal, RESET)
            finally:
                os.close(terminal)
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcflush(0, termios.TCOFLUSH)
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)
