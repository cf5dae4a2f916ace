"""The console's Textual app: screens over pictures, at the terminal's pace."""

import asyncio
import contextlib
import signal
import time
import traceback
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.text import Text
from textual import events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.filter import LineFilter
from textual.message import Message

from infer_console import heap
from infer_console.habits.keymap import KeymapError, keymap_path, read_keymap
from infer_console.state.picture import Picture
from infer_console.terminal.link import LinkBudget, Pace
from infer_console.terminal.output_filter import OutputFilter
from infer_console.terminal.safe_text import SafeText, safe, safe_multiline
from infer_console.ui.acting import Acting
from infer_console.ui.alarm_round import AlarmRound
from infer_console.ui.backpressure import is_stuck
from infer_console.ui.calling import Calling
from infer_console.ui.commander import Commander
from infer_console.ui.continuing import resume_what_was_suspended
from infer_console.ui.departure import Departure
from infer_console.ui.display import DEFAULT_DISPLAY, Display
from infer_console.ui.fleet_switch import FleetSwitch
from infer_console.ui.keyboard import guard_input
from infer_console.ui.leaving import EndingSignals, TerminalGuard
from infer_console.ui.looking_back import PLAY_S, LookingBack
from infer_console.ui.output import SegmentFilter, draw_where_the_terminal_is
from infer_console.ui.overlays import Overlays
from infer_console.ui.pacing import Pacer
from infer_console.ui.painter import Painter
from infer_console.ui.ports import CollectorPort, PastPort
from infer_console.ui.presses import Presses
from infer_console.ui.quick_keys import keep_escape
from infer_console.ui.screens.base import ConsoleScreen, Interest, PaintedScreen
from infer_console.ui.screens.doctor import DoctorScreen
from infer_console.ui.screens.events import EventsScreen
from infer_console.ui.screens.fleet import FleetScreen
from infer_console.ui.screens.planner import PlannerScreen
from infer_console.ui.screens.replica import ReplicaScreen
from infer_console.ui.screens.requests import RequestsScreen
from infer_console.ui.screens.streams import StreamsScreen
from infer_console.ui.screens.traffic import TrafficScreen
from infer_console.ui.terminal_watch import follow_size, is_gone
from infer_console.ui.themes import Theme
from infer_console.ui.theming import Theming
from infer_console.ui.time_travel import TimeTravel
from infer_console.view.look import Look, ScreenName
from infer_console.view.priority import row_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from textual.screen import Screen

#: How long a notice stands in the key bar.
NOTICE_S = 4.0
#: What is wrong with a file of the operator's is said for longer.
TROUBLE_S = 15.0
#: The clock and the age of the view go on by themselves.
HEARTBEAT_S = 1.0
#: By then all is there that stays to the end.
STARTED_S = 3.0
#: Replicas whose rosters the past's list of requests is made of.
MOST_LISTED = 16
LEAVE_KEYS = ("ctrl+c", "ctrl+q")
COLOR_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


class Woken(Message):
    """The collector has a new picture."""


class ConsoleApp(App[int]):
    """Owns what the operator looks at; the collector owns what is known."""

    ENABLE_COMMAND_PALETTE = False
    SCREENS = {  # noqa: RUF012
        "fleet": FleetScreen,
        "replica": ReplicaScreen,
        "requests": RequestsScreen,
        "streams": StreamsScreen,
        "events": EventsScreen,
        "traffic": TrafficScreen,
        "planner": PlannerScreen,
        "doctor": DoctorScreen,
    }

    def __init__(
        self,
        collector: CollectorPort,
        *,
        embedded: bool = False,
        display: Display = DEFAULT_DISPLAY,
        guard: TerminalGuard | None = None,
        theme: str | None = None,
        past: PastPort | None = None,
        replay_speed: float | None = None,
        replay_at: str | None = None,
    ) -> None:
        """``past`` has what was, where it is kept; ``replay_speed`` is for a recording, which has no now."""
        # Our styles are the terminal's: Textual need not convert them.
        super().__init__(ansi_color=True)
        keep_escape()
        guard_input()
        self.collector = collector
        self.fleets = FleetSwitch(self, collector)
        self.look = Look()
        self.output_filter = OutputFilter()
        self._line_filter = SegmentFilter(self.output_filter, ascii_only=display.ascii_only)
        self.painter = Painter(LinkBudget(display.link, display.fps), colors=self._colors())
        self.painter.ranks = self._ranks
        self.pacer = Pacer(self, self.painter)
        self.presses = Presses(self)
        self._guard = guard
        self._signals = EndingSignals()
        self.calling = Calling(self, display, guard)
        self.overlays = Overlays(self)
        self.acting = Acting(self)
        self.alarms = AlarmRound(self)
        self.looking_back = LookingBack(self, past)
        self.departure = Departure(self, embedded=embedded)
        self.theming = Theming(theme, self.console.color_system, self._dress, self.say)
        self.time = TimeTravel(
            self.look, lambda: collector.picture, past, replay_speed=replay_speed, replay_at=replay_at
        )
        self._notice: tuple[SafeText, float] | None = None
        self._woken = False
        self.commander = Commander(self)
        self._troubles = [*self.theming.troubles, *self.commander.troubles]
        self._read_keymap()
        self._interest: Interest | None = None

    # --- keys

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.CursorPosition):
            self.pacer.answered(event.time)
            return
        if isinstance(event, events.Resize):
            # Also where the size is the same: a terminal that was attached anew shows something else.
            self.painter.forget()
        if not isinstance(event, events.Key):
            await super().on_event(event)
        elif event.key in LEAVE_KEYS:
            self.departure.leave()
        else:
            await self.presses.take(event)

    async def press(self, key: events.Key) -> None:
        """A key, to the screen that is on top."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, PaintedScreen):
            await screen.press(key)

    # --- what the screens ask

    @property
    def theme_now(self) -> Theme:
        return self.theming.now

    def _dress(self, theme: Theme) -> None:
        if isinstance(self.screen, PaintedScreen):
            self.screen.canvas.use_theme(theme)

    @property
    def shown_picture(self) -> Picture:
        """The newest picture, or that of the moment to which the operator went."""
        return self.time.picture

    def now(self) -> float:
        """Unix seconds of the server's clock: the moment that is shown."""
        moment = self.time.moment
        return time.time() + self.collector.picture.ahead_s if moment is None else moment

    @property
    def notice(self) -> SafeText | None:
        if self._notice is not None and time.monotonic() < self._notice[1]:
            return self._notice[0]
        return None

    def get_line_filters(self) -> "Sequence[LineFilter]":
        return [*super().get_line_filters(), self._line_filter]

    # --- starting, frames, ending

    def on_load(self) -> None:
        """Before the terminal is touched: a signal that came between the two would leave it raw."""
        self._event_loop = asyncio.get_running_loop()
        self._signals.install(self._signalled)

    def on_mount(self) -> None:
        resume_what_was_suspended(self._driver, lambda: self.on_loop(self.redraw_if_shown))
        self.push_screen("fleet")
        self.collector.on_picture(self._wake)
        self.set_interval(HEARTBEAT_S, self._heartbeat)
        if self._guard is not None:  # the process is this console's
            self.set_timer(STARTED_S, heap.leave_alone)
        if self.time.is_replay:
            self.set_interval(PLAY_S, self.looking_back.tick)
        if self._troubles:
            self.say("; ".join(self._troubles), TROUBLE_S)

    def _read_keymap(self) -> None:
        try:
            self.look.keymap = read_keymap(keymap_path())
        except KeymapError as error:
            self._troubles.insert(0, f"the usual keys are used: {error}")

    def on_unmount(self) -> None:
        self.collector.on_picture(None)
        self._signals.remove()

    def _signalled(self, status: int) -> None:
        """In a signal handler: the loop may be waiting for the terminal, so the clock starts here."""
        self.guard_exit(status)
        self._event_loop.call_soon_threadsafe(self.departure.leave_now, status)

    def guard_exit(self, status: int) -> None:
        if self._guard is not None:
            self._guard.leave(status, lambda: is_stuck(self))

    def on_loop(self, call: "Callable[..., None]", *arguments: object) -> None:
        """From any thread: call it soon where the screens are; not at all when those are gone."""
        with contextlib.suppress(RuntimeError):
            self._event_loop.call_soon_threadsafe(call, *arguments)

    def _wake(self) -> None:
        """On the collector's thread. Wake-ups coalesce: one message is under way at most."""
        if not self._woken:
            self._woken = True
            self.post_message(Woken())

    def on_woken(self) -> None:
        self._woken = False
        self.calling.attend()
        self.pacer.due()

    def frame(self) -> int:
        """Repaint what changed, now; returns how many rows did. A timer may still come when the last screen
        has gone."""
        self.pacer.painted()
        self.time.refresh()
        self.look.others = self.fleets.others()
        return self.repaint()

    def repaint(self) -> int:
        """The same of the moment that is shown."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        return screen.paint() if isinstance(screen, PaintedScreen) else 0

    def redraw(self) -> None:
        """Write every cell again, whatever the terminal is thought to show."""
        self.painter.forget()
        self.screen.refresh()

    def redraw_if_shown(self) -> None:
        """While this stood still something else may have been written there."""
        if self._can_draw():
            self.redraw()

    def _display(self, screen: "Screen[object]", renderable: "RenderableType | None") -> None:
        """In place of Textual's own, which writes what is repainted whether it changed or not."""
        if isinstance(renderable, LayoutUpdate | ChopsUpdate) and self._can_draw():
            if not self._batch_count:
                self.painter.take(renderable, self.size.width, self.size.height)
                self.pacer.flush()
            renderable = None
        super()._display(screen, renderable)

    def _ranks(self) -> list[float]:
        screen = self.screen_stack[-1] if self.screen_stack else None
        return row_ranks(screen.canvas.rows) if isinstance(screen, PaintedScreen) else []

    def show_pace(self, pace: Pace) -> None:
        """What the terminal is given, for the banner."""
        self.look.pace = pace

    def _can_draw(self) -> bool:
        return self._running and not self._closed and self._driver is not None and not self.is_headless

    def write(self, text: str) -> None:
        """To the terminal, past the compositor. Only what the painter and :mod:`terminal` made."""
        if text and self._driver is not None and self._can_draw():
            self._driver.write(text)

    @property
    def synchronised(self) -> bool:
        """Whether the terminal said that it can show a frame at once."""
        return self._sync_available

    def _colors(self) -> ColorSystem:
        return COLOR_SYSTEMS.get(self.console.color_system or "", ColorSystem.TRUECOLOR)

    def _fatal_error(self) -> None:
        """Our own crash: a plain traceback, escaped, without the locals that Textual would print."""
        self.guard_exit(1)
        self.calling.give_title_back()
        self._exit_renderables.append(Text(safe_multiline(traceback.format_exc(), 60)))
        self._close_messages_no_wait()

    # --- where the operator goes

    def go(self, screen: ScreenName) -> None:
        if screen == "replica" and self.look.replica is None:
            self.look.replica = self.look.cursor("fleet", "replicas").id
        if screen != "streams":
            self.look.zoomed = None
            self.look.revealed = False  # who comes back asks for the text anew
        if screen != "requests":
            self.look.timeline = None
        if isinstance(self.screen, ConsoleScreen) and self.screen.name_in_look == screen:
            self.frame()
        else:
            self.switch_screen(screen)

    def look_at(self, interest: Interest) -> None:
        """Ask the collector for what is looked at now, where that has changed."""
        if interest != self._interest:
            self._interest = interest
            self.collector.set_interest(interest.replicas, interest.detail)
            self.collector.list_requests(interest.listing)
            self.collector.watch_demand(interest.demand)
            self.collector.watch_timeline(interest.timeline)
            self.collector.watch_sentence(interest.sentence)
        listed = tuple(self.shown_picture.replicas)[:MOST_LISTED] if interest.listing else ()
        self.time.looking_at(interest.replicas or listed)

    def watch_streams(self, requests: list[str], content: bool = False) -> None:
        if not self.time.is_live:
            return  # the text of the past is not kept
        self.collector.watch_streams(requests, content)

    def open_timeline(self, request: str) -> None:
        """What happened to one request; Esc comes back from there."""
        screen = self.screen
        self.look.timeline = request
        self.look.timeline_from = screen.name_in_look if isinstance(screen, ConsoleScreen) else "requests"
        self.look.cursors.pop(("requests", "timeline"), None)
        self.go("requests")

    def ask_anew(self) -> None:
        """What is looked at is not yet asked of the collector that is shown now."""
        self._interest = None

    def _heartbeat(self) -> None:
        if is_gone(self):
            self._signalled(128 + signal.SIGHUP)
            return
        follow_size(self)
        self.theming.follow()
        self.calling.attend()
        self.pacer.beat()

    def say(self, text: str, for_s: float = NOTICE_S) -> None:
        """A short notice in place of the key bar."""
        self._notice = (safe(text, 200), time.monotonic() + for_s)
        self.frame()


def run_app(
    collector: CollectorPort,
    *,
    embedded: object | None,
    read_only: bool,
    display: Display = DEFAULT_DISPLAY,
    past: PastPort | None = None,
    replay_speed: float | None = None,
    replay_at: str | None = None,
) -> int:
    """Show the console until the operator leaves; returns the exit status. ``embedded`` is the engine that
    this console started, if any: it ends with the console. Read-only is the collector's: it sends nothing
    then."""
    draw_where_the_terminal_is()
    with TerminalGuard() as guard:
        app = ConsoleApp(
            collector,
            embedded=embedded is not None,
            display=display,
            guard=guard,
            past=past,
            replay_speed=replay_speed,
            replay_at=replay_at,
        )
        app.run(mouse=False)
    return app.return_code or 0
