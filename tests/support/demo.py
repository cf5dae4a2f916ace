"""Shows a prepared picture in the real console, for screenshots and for tests in a pseudo-terminal:

``PYTHONPATH=tests python -m support.demo
[incident|small|quiet|starting|hostile|benign|oracle|crash|patient] [theme]``

``patient`` waits longer than anybody would for what is under way when it is left.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from infer_console.terminal import link
from infer_console.terminal.capabilities import capabilities
from infer_console.terminal.link import Pace
from infer_console.ui import app as console_app
from infer_console.ui import departure, leaving
from infer_console.ui.app import ConsoleApp
from infer_console.ui.backpressure import is_behind
from infer_console.ui.display import Display
from infer_console.ui.leaving import TerminalGuard
from infer_console.ui.output import draw_where_the_terminal_is
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.view.look import ScreenName
from support import pictures
from support.fake_collector import FakeCollector
from support.hostile_pictures import STREAM, hostile_ids, hostile_incident
from textual import events
from textual._compositor import LayoutUpdate

PICTURES = {
    "incident": pictures.incident,
    "small": pictures.small,
    "quiet": pictures.quiet,
    "starting": pictures.starting,
}
#: What the last picture of a parade is called.
DONE = "parade-is-over"


class DemoApp(ConsoleApp):
    """Its clock stands at the picture's moment."""

    def now(self) -> float:
        return pictures.NOW

    def show_pace(self, pace: Pace) -> None:
        """Neither do other numbers change by themselves."""


class Act(NamedTuple):
    """One picture of a parade: ``text`` in every field that others fill, or ids too."""

    screen: ScreenName
    ids: bool
    text: str

    @property
    def kind(self) -> str:
        return f"{self.screen} {'ids' if self.ids else 'texts'}"


def acts_of(texts: Sequence[str]) -> list[Act]:
    """A few texts on every screen and as ids; of many every one on one of these, for what each does to the
    rows of every screen is tested without a terminal. Screens change seldom."""
    some = [texts[number::4] for number in range(4)] if len(texts) > 60 else [texts] * 4
    shown: list[tuple[ScreenName, bool, Sequence[str]]] = [
        ("fleet", False, some[0]),
        ("replica", False, some[1]),
        ("streams", False, some[2]),
        ("fleet", True, some[3]),
    ]
    return [Act(screen, ids, text) for screen, ids, those in shown for text in those]


class ParadeApp(DemoApp):
    """Shows the incident with one text after the other in every user's and server's field, on every screen;
    then the plain one. The bottom line tells which act it is."""

    def __init__(self, texts: Sequence[str], collector: FakeCollector) -> None:
        super().__init__(collector, theme="dark", guard=TerminalGuard())
        self._fake = collector
        self._texts = texts
        self._acts = iter(acts_of(texts))
        self._number = self._written = 0

    def on_mount(self) -> None:
        super().on_mount()
        self.set_timer(0.2, self._next)

    def _next(self) -> None:
        """One picture; the next one when this one has been written."""
        screen = self.screen
        written = self.painter.written_bytes > self._written or not self._number
        if not written or is_behind(self) or not isinstance(screen, ConsoleScreen):
            self.set_timer(0.005, self._next)
            return
        act = next(self._acts, None)
        if act is None:
            self._fake.show(pictures.incident())
            self.go("fleet")
            self.say(f"{DONE} caught {self.output_filter.caught}")
            return
        if screen.name_in_look != act.screen:
            self.go(act.screen)
        self.look.zoomed = act.text if act.ids else STREAM
        self.look.revealed = True
        self._number += 1
        self._written = self.painter.written_bytes
        self._fake.show(hostile_ids(act.text) if act.ids else hostile_incident(act.text))
        self.say(f"act {self._number} {act.kind} of {len(self._texts)}")
        self.call_after_refresh(self._next)


class OracleApp(DemoApp):
    """Two keys more: one shows the next picture, one tells in a file what the whole screen would be by
    Textual's own renderer."""

    def __init__(self, collector: FakeCollector) -> None:
        super().__init__(collector, theme="dark", guard=TerminalGuard())
        self._fake = collector
        texts = ("東京 \u0301x", "\x1b[2J", "plain")
        self._shows = itertools.cycle(
            [pictures.incident(), pictures.small(), *map(hostile_incident, texts), pictures.quiet()]
        )
        self._told = 0

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and event.key == "ctrl+n":
            self._fake.show(next(self._shows))
        elif isinstance(event, events.Key) and event.key == "ctrl+o":
            self.set_timer(0.05, self._tell)
        else:
            await super().on_event(event)

    def _tell(self) -> None:
        if not self.painter.complete or self.screen._dirty_widgets:
            self.set_timer(0.05, self._tell)
            return
        compositor = self.screen._compositor
        region = compositor.size.region
        chops = compositor._render_chops(region, lambda y: True)
        update = LayoutUpdate([chop.values() for chop in chops], region)
        self._told += 1
        path = Path(os.environ["ORACLE"])
        part = path.with_suffix(".part")
        part.write_text(f"{self._told}\n{update.render_segments(self.console)}", encoding="utf-8")
        part.rename(path)


class CrashingCollector(FakeCollector):
    """Raises an error with hostile text as soon as a replica is looked at."""

    def set_interest(self, replicas: Iterable[str], detail: Sequence[str] = ("roster", "blocks")) -> None:
        if tuple(replicas):
            secret = "a local variable"
            raise ValueError("\x1b]52;c;eA==\x07 and \u202e bidi" + secret[:0])


def demo_app(what: str, theme: str | None = None) -> DemoApp:
    leaving.SLOW_LIMIT_S = 60.0  # a busy machine is no terminal that hangs
    guard = TerminalGuard()
    if what == "crash":
        return DemoApp(CrashingCollector(pictures.incident()), theme=theme, guard=guard)
    if what == "patient":
        departure.ANSWER_S = 30.0
        what = "incident"
    if what in ("oracle", "holding"):
        if what == "holding":
            console_app.HOLD_S = link.ASK_AGAIN_S = 60.0
        return OracleApp(FakeCollector(pictures.incident()))
    display = Display(ascii_only=capabilities(os.environ).ascii_only)
    app = DemoApp(FakeCollector(PICTURES[what]()), theme=theme, guard=guard, display=display)
    app.look.replica = "r2" if what == "incident" else "r0"
    return app


def parade(what: str) -> ParadeApp:
    from hostile.corpus import BENIGN, PARADE

    texts = PARADE if what == "hostile" else BENIGN
    app = ParadeApp(texts, FakeCollector(pictures.incident()))
    app.look.replica = "r2"
    return app


def main(what: str = "incident", theme: str | None = None) -> int:
    app = parade(what) if what in ("hostile", "benign") else demo_app(what, theme)
    draw_where_the_terminal_is()
    with app._guard or contextlib.nullcontext():
        app.run(mouse=False)
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
