"""Beyond the screen: the bell, the window's title, the clipboard."""

import time
from typing import TYPE_CHECKING

from infer_console.terminal.attention import Attention
from infer_console.terminal.clipboard import copy_sequence
from infer_console.terminal.safe_text import SafeText
from infer_console.ui.backpressure import DEEP, queued_writes
from infer_console.ui.display import Display
from infer_console.ui.leaving import TerminalGuard
from infer_console.view.alarms import ordered_alarms

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp


class Calling:
    def __init__(self, app: "ConsoleApp", display: Display, guard: TerminalGuard | None) -> None:
        self._app = app
        self._guard = guard
        self._tmux = display.tmux
        self._attention = Attention(bell=display.bell, title=display.title)

    def attend(self) -> None:
        """Ring and say it in the window's title when a critical alarm is new. The alarms of now, also where
        the view stands still."""
        if queued_writes(self._app) > DEEP:
            return  # the terminal is behind; the next picture tries again
        picture = self._app.collector.picture
        alarms = {
            f"{place} {alarm.rule} {alarm.replica}": alarm.text
            for place, each in enumerate(self._app.fleets.pictures)
            for alarm in ordered_alarms(each)
            if alarm.severity == "critical"
        }
        name = picture.fleet.name if picture.fleet is not None else "infer-console"
        self._app.write(self._attention.critical(alarms, name, time.monotonic()))
        if self._guard is not None:
            self._guard.title_kept = self._attention.titled

    def give_title_back(self) -> None:
        if queued_writes(self._app) <= DEEP:
            self._app.write(self._attention.leave())

    def copy(self, text: SafeText) -> None:
        """Put text into the clipboard of the machine that the terminal is on, and say so. Whether the
        terminal takes it cannot be known."""
        sequence = copy_sequence(text, tmux=self._tmux)
        if sequence is None:
            self._app.say("too long for the clipboard")
        elif queued_writes(self._app) <= DEEP:
            self._app.write(sequence)
            self._app.say(f"to the clipboard: {text}")
