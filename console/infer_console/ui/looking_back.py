"""Another time than now, on all screens: pause, steps, marks, a moment, two moments beside each other, and a
recording of what was."""

from pathlib import Path
from typing import TYPE_CHECKING

from infer_console.past.export import Exported
from infer_console.past.files import new_file
from infer_console.past.when import moment, span
from infer_console.ui.ports import PastPort
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.diff import DiffScreen
from infer_console.view.diff import Side, SideError, parse_side, side_of
from infer_console.view.format import clock_in_lists

if TYPE_CHECKING:
    from concurrent.futures import Future

    from infer_console.ui.app import ConsoleApp

#: A recording that is played shows another moment this often.
PLAY_S = 0.25
#: An exported file that begins so much later than was asked for is said to.
LATE_S = 2.0


class LookingBack:
    """``past`` has what was, where it is kept."""

    def __init__(self, app: "ConsoleApp", past: PastPort | None) -> None:
        self._app = app
        self._past = past

    def toggle_pause(self) -> None:
        """Freeze what is shown, or back to now; of a recording, play or stop."""
        if self._app.time.is_replay:
            self._app.time.toggle_playing()
        elif self._app.time.is_live:
            self._app.time.pause()
        else:
            self._app.time.resume()
        self._app.frame()

    def back_to_now(self) -> None:
        self._app.time.resume()
        self._app.frame()

    def step_time(self, by_s: float) -> None:
        self._app.time.play(None)
        if not self._app.time.step(by_s):
            self._app.say("nothing of the past is kept here")
        self._app.frame()

    def jump_to(self, at: float) -> None:
        """Show a moment (Unix seconds) on all screens; the nearest that is kept."""
        self._app.time.play(None)
        if not self._app.time.jump(at):
            self._app.say("nothing of the past is kept here")
        self._app.frame()

    def go_to_mark(self, by: int) -> None:
        mark = self._app.time.next_mark(by)
        self._app.say(f"{mark.sign} {mark.text}" if mark is not None else "no mark there")

    def mark_time(self) -> None:
        mark = self._app.time.mark()
        self._app.say(
            f"{mark.text} is set; e exports from here" if mark is not None else "no time is kept here"
        )

    def tick(self) -> None:
        """A recording goes on."""
        if self._app.time.tick(PLAY_S):
            self._app.frame()

    def export_now(self) -> None:
        """What happened since the last own mark, or in the last ten minutes, into a new file."""
        from_at, to_at = self._app.time.span_to_export()
        fleet = self._app.collector.picture.fleet
        try:
            path = new_file(fleet.name if fleet is not None else "", to_at)
        except OSError as error:
            self._app.say(f"not exported: {error}")
        else:
            self.export(from_at, to_at, path)

    def export(self, from_at: float, to_at: float, path: Path, *, redact: bool = True) -> None:
        """Write that time (Unix seconds) as a recording, in the background; request ids and tenants are
        hashed where ``redact`` is given. What became of it is said in the key bar."""
        if self._past is None:
            self._app.say("nothing of the past is kept here")
            return
        self._app.say(f"writing {path}")
        future = self._past.export(from_at, to_at, path, redact=redact)
        future.add_done_callback(lambda done: self._app.on_loop(self._exported, done, path, from_at))

    def _exported(self, future: "Future[Exported]", path: Path, from_at: float) -> None:
        error = future.exception()
        if error is not None:
            why = f"{path}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            self._app.say(f"not exported: {why}")
            return
        done = future.result()
        late = done.from_at is not None and done.from_at - from_at > LATE_S
        begins = f", begins at {clock_in_lists(done.from_at)}" if late else ""
        self._app.say(f"{path}: {done.messages:,} messages, {done.bytes / 1000:,.0f} kB{begins}")

    # What an operator typed, seen from the moment that is shown; times of day from the latest that can be.

    def moment(self, word: str) -> float:
        """As ``past.when.moment``; ValueError."""
        return moment(word, self._app.now(), self._app.time.latest())

    def span(self, word: str) -> tuple[float, float]:
        """As ``past.when.span``; ValueError."""
        return span(word, self._app.now(), self._app.time.latest())

    def side(self, word: str) -> tuple[str | None, float | None]:
        """As ``view.diff.parse_side``; SideError."""
        return parse_side(word, self._app.now(), self._app.time.latest())

    def show_diff(self, a: str, b: str) -> str | None:
        """Two moments or two replicas beside each other, in a box; returns why not."""
        below = self._app.screen
        if not isinstance(below, ConsoleScreen):
            return "close what is open first"
        try:
            sides = [self._side(word) for word in (a, b)]
        except SideError as error:
            return str(error)
        self._app.push_screen(DiffScreen(below, sides[0], sides[1]))
        return None

    def _side(self, word: str) -> Side:
        replica, at = self.side(word)
        picture = self._app.shown_picture if at is None else self._app.time.picture_at(at)
        return side_of(word, picture, replica)
