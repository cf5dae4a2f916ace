"""Leaving: asked about where others would lose their answers, never held up by the terminal."""

import asyncio
import time
from typing import TYPE_CHECKING

from infer_console.terminal.safe_text import safe
from infer_console.ui.backpressure import takes_more
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.overlay import QuestionScreen
from infer_console.view.dialog import question_rows

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp

#: How long an answer of the terminal may hold up the exit.
ANSWER_S = 0.7


class Departure:
    """``embedded``: the engine ends with this console."""

    def __init__(self, app: "ConsoleApp", *, embedded: bool) -> None:
        self._app = app
        self._embedded = embedded

    def leave(self, *, tests_too: bool = False) -> None:
        """Leave, but ask first where the engine ends too and others than test traffic would lose their
        answers; with ``tests_too`` also where only test traffic would end."""
        lost = self._requests_of_others()
        running = tests_too and self._embedded and self._tests_run()
        below = self._app.screen
        if not (lost or running) or not isinstance(below, ConsoleScreen):
            self.leave_now(0)
            return
        lines = [
            safe(f"{lost} request{'s' if lost != 1 else ''} of clients are being served by this engine."),
            safe("The engine ends with the console; their clients would get an error."),
        ]
        if not lost:
            lines = [safe("The engine ends with the console, and the test traffic that it runs too.")]
        rows = question_rows(
            "Leave?", lines, "y: end the engine and leave", "any other key: stay", self._app.size.width
        )
        self._app.push_screen(QuestionScreen(below, rows))

    def leave_now(self, status: int) -> None:
        """An answer that is still under way would be typed into the shell: it is waited for, a moment."""
        self._app.guard_exit(status)
        self._app.pacer.leave()
        self._leave_at(status, time.monotonic() + ANSWER_S)

    def _leave_at(self, status: int, deadline_s: float) -> None:
        awaited = self._app.pacer.awaiting and self._app.pacer.measured and takes_more()
        if awaited and time.monotonic() < deadline_s:
            # No timer of the app: after a signal there is no active app in this context.
            asyncio.get_running_loop().call_later(0.02, self._leave_at, status, deadline_s)
            return
        self._app.calling.give_title_back()
        self._app.exit(status, return_code=status)

    def _tests_run(self) -> bool:
        fleet = self._app.collector.picture.fleet
        return fleet is not None and (fleet.traffic.running or fleet.traffic.in_flight > 0)

    def _requests_of_others(self) -> int:
        picture = self._app.collector.picture
        if not self._embedded or picture.totals is None or picture.link.state != "live":
            return 0
        served = (picture.totals.running or 0) + (picture.totals.waiting or 0)
        test = picture.fleet.traffic.in_flight if picture.fleet is not None else 0
        return max(0, served - test)
