"""How far something long is, in one line of a terminal that is written over."""

import time
from typing import TextIO

from infer_console.cli.tui import is_terminal

#: Written anew this often, at most.
PERIOD_S = 0.25


class Progress:
    """Use as ``with``: at its end the line is gone. Nothing is written to what is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if is_terminal(stream) else None
        self._next_s = 0.0
        self._shown = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None and self._shown:
            self._put("")

    def say(self, text: str) -> None:
        """``text`` is our own: it goes to the terminal as it is."""
        if self._stream is not None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PERIOD_S
            self._put(text)

    def _put(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(f"\r{text.ljust(self._shown)}{'' if text else chr(13)}")
            self._stream.flush()
            self._shown = len(text)
