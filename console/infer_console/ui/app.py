"""The console's Textual app: screens over pictures, at the terminal's pace."""

import asyncio
import dataclasses
import os
import time
import traceback
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.text import Text
from textual import events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.filter import LineFilter
from textual.message import Message
from textual.timer import Timer

from infer_console.actions import registry
from infer_console.actions.action import Action, Undo
from infer_console.actions.opening import given_now, is_out, switched
from infer_console.actions.params import Given
from infer_console.habits.keymap import KeymapError, keymap_path, read_keymap
from infer_console.past.export import Exported
from infer_console.past.files import new_file
from infer_console.state.picture import Picture
from infer_console.terminal.answers import HOLD_S, TornAnswer, Typed
from infer_console.terminal.attention import Attention
from infer_console.terminal.clipboard import copy_sequence
from infer_console.terminal.link import LinkBudget, Pace
from infer_console.terminal.output_filter import OutputFilter
from infer_console.terminal.safe_text import SafeText, safe, safe_multiline
from infer_console.ui.backpressure import DEEP, queued_writes
from infer_console.ui.commander import Commander
from infer_console.ui.display import DEFAULT_DISPLAY, Display
from infer_console.ui.leaving import EndingSignals, TerminalGuard
from infer_console.ui.output import SegmentFilter, draw_where_the_terminal_is
from infer_console.ui.pacing import Pacer
from infer_console.ui.painter import Painter
from infer_console.ui.ports import CollectorPort, PastPort
from infer_console.ui.quick_keys import as_typed, keep_escape
from infer_console.ui.screens.action import ActionScreen
from infer_console.ui.screens.base import ConsoleScreen, Interest, PaintedScreen
from infer_console.ui.screens.boxes import KindsScreen, OperationScreen
from infer_console.ui.screens.command import CommandScreen, PaletteScreen
from infer_console.ui.screens.diff import DiffScreen
from infer_console.ui.screens.doctor import DoctorScreen
from infer_console.ui.screens.events import EventsScreen
from infer_console.ui.screens.fleet import FleetScreen
from infer_console.ui.screens.overlay import FilterScreen, HelpScreen, QuestionScreen
from infer_console.ui.screens.planner import PlannerScreen
from infer_console.ui.screens.replica import ReplicaScreen
from infer_console.ui.screens.requests import RequestsScreen
from infer_console.ui.screens.streams import StreamsScreen
from infer_console.ui.screens.traffic import TrafficScreen
from infer_console.ui.themes import (
    Theme,
    ThemeError,
    at_present,
    fitting_theme,
    load_themes,
    load_user_themes,
    reloaded,
    user_themes_directory,
)
from infer_console.ui.time_travel import TimeTravel
from infer_console.view.alarms import ordered_alarms
from infer_console.view.dialog import question_rows
from infer_console.view.diff import Side, SideError, parse_side, side_of
from infer_console.view.look import Look, ScreenName
from infer_console.view.order import pane_ids
from infer_console.view.priority import row_ranks
from infer_console.view.proposal import proposed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from rich.console import RenderableType
    from textual.screen import Screen

#: How long a notice stands in the key bar.
NOTICE_S = 4.0
#: What is wrong with a file of the operator's is said for longer.
TROUBLE_S = 15.0
#: The clock and the age of the view go on by themselves.
HEARTBEAT_S = 1.0
MOST_UNDOS = 16
#: How long an answer of the terminal may hold up the exit.
ANSWER_S = 0.7
#: Replicas whose rosters the past's list of requests is made of.
MOST_LISTED = 16
#: A recording that is played shows another moment this often.
PLAY_S = 0.25
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
        self.collector = collector
        self.look = Look()
        self.output_filter = OutputFilter()
        self._line_filter = SegmentFilter(self.output_filter, ascii_only=display.ascii_only)
        self._embedded = embedded
        self._past = past
        self._display_options = display
        self._attention = Attention(bell=display.bell, title=display.title)
        self.painter = Painter(LinkBudget(display.link, display.fps), colors=self._colors())
        self.painter.ranks = self._ranks
        self.pacer = Pacer(self, self.painter)
        self._guard = guard
        self._signals = EndingSignals()
        own, self._theme_troubles = load_user_themes(user_themes_directory())
        self._themes = load_themes() | own
        no_color = "NO_COLOR" in os.environ
        self._theme_name = theme or fitting_theme(self.console.color_system, no_color)
        self.time = TimeTravel(
            self.look, lambda: collector.picture, past, replay_speed=replay_speed, replay_at=replay_at
        )
        self._notice: tuple[SafeText, float] | None = None
        self._woken = False
        self._torn = TornAnswer()
        self._hold: Timer | None = None
        self.commander = Commander(self)
        self._troubles = [*(f"theme {trouble}" for trouble in self._theme_troubles), *self.commander.troubles]
        self._read_keymap()
        self._alarm = -1
        self._interest: Interest | None = None
        #: What would take back what was done from here, the newest last.
        self.undos: deque[Undo] = deque(maxlen=MOST_UNDOS)

    # --- keys

    async def on_event(self, event: events.Event) -> None:
        """Keys go to the screen that is on top when their turn comes, and each is done with before the next.
        Several may come in one read, and Textual would give them all to the screen that was there first."""
        if isinstance(event, events.CursorPosition):
            self.pacer.answered(event.time)
            return
        if isinstance(event, events.Resize):
            # Also where the size is the same: a terminal that was attached anew shows something else.
            self.painter.forget()
        if not isinstance(event, events.Key):
            await super().on_event(event)
        elif event.key in LEAVE_KEYS:
            self.leave()
        else:
            self.pacer.pressed()
            for key in as_typed(event):
                acted, answer = self._torn.feed(Typed(key.key, key.character), self.pacer.awaiting)
                if answer:
                    self.pacer.answered(key.time)
                await self._press(acted)
            if self._hold is not None:
                self._hold.stop()
            # Anew with every piece: a torn answer takes its time.
            self._hold = self.set_timer(HOLD_S, self._release) if self._torn.holding else None

    async def _press(self, keys: list[Typed]) -> None:
        for key in keys:
            screen = self.screen_stack[-1] if self.screen_stack else None
            if isinstance(screen, PaintedScreen):
                await screen.press(events.Key(*key))

    async def _release(self) -> None:
        """What was held is no answer: nothing that continues one has come."""
        await self._press(self._torn.release())

    # --- what the screens ask

    @property
    def theme_now(self) -> Theme:
        return self._themes[self._theme_name]

    @property
    def shown_picture(self) -> Picture:
        """The newest picture, or that of the moment to which the operator went."""
        return self.time.picture

    def now(self) -> float:
        """Unix seconds: the moment that is shown."""
        moment = self.time.moment
        return time.time() if moment is None else moment

    @property
    def notice(self) -> SafeText | None:
        if self._notice is not None and time.monotonic() < self._notice[1]:
            return self._notice[0]
        return None

    def get_line_filters(self) -> "Sequence[LineFilter]":
        return [*super().get_line_filters(), self._line_filter]

    # --- starting, frames, ending

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._signals.install(self._signalled)
        self.push_screen("fleet")
        self.collector.on_picture(self._wake)
        self.set_interval(HEARTBEAT_S, self._heartbeat)
        if self.time.is_replay:
            self.set_interval(PLAY_S, self._play)
        for trouble in self._troubles[:1]:
            self.say(trouble, TROUBLE_S)

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
        self._guard_exit(status)
        self._event_loop.call_soon_threadsafe(self.leave_now, status)

    def _guard_exit(self, status: int) -> None:
        if self._guard is not None:
            self._guard.leave(status, lambda: queued_writes(self) > 0)

    def _wake(self) -> None:
        """On the collector's thread. Wake-ups coalesce: one message is under way at most."""
        if not self._woken:
            self._woken = True
            self.post_message(Woken())

    def on_woken(self) -> None:
        self._woken = False
        self._call_attention()
        self.pacer.due()

    def frame(self) -> int:
        """Repaint what changed, now; returns how many rows did. A timer may still come when the last screen
        has gone."""
        self.pacer.painted()
        self.time.refresh()
        screen = self.screen_stack[-1] if self.screen_stack else None
        return screen.paint() if isinstance(screen, PaintedScreen) else 0

    def redraw(self) -> None:
        """Write every cell again, whatever the terminal is thought to show."""
        self.painter.forget()
        self.screen.refresh()

    def _display(self, screen: "Screen[object]", renderable: "RenderableType | None") -> None:
        """In place of Textual's own, which writes what is repainted whether it changed or not."""
        if isinstance(renderable, LayoutUpdate | ChopsUpdate) and self._can_draw():
            if not self._batch_count:
                self.painter.take(renderable, self.size.width, self.size.height)
                self.pacer.flush()
            renderable = None
        super()._display(screen, renderable)

    def _call_attention(self) -> None:
        """Ring and say it in the window's title when a critical alarm is new. The alarms of now, also where
        the view stands still."""
        if queued_writes(self) > DEEP:
            return  # the terminal is behind; the next picture tries again
        picture = self.collector.picture
        alarms = {
            f"{alarm.rule} {alarm.replica}": alarm.text
            for alarm in ordered_alarms(picture)
            if alarm.severity == "critical"
        }
        name = picture.fleet.name if picture.fleet is not None else "infer-console"
        self.write(self._attention.critical(alarms, name, time.monotonic()))
        if self._guard is not None:
            self._guard.title_kept = self._attention.titled

    def _give_title_back(self) -> None:
        if queued_writes(self) <= DEEP:
            self.write(self._attention.leave())

    def copy(self, text: SafeText) -> None:
        """Put text into the clipboard of the machine that the terminal is on, and say so. Whether the
        terminal takes it cannot be known."""
        sequence = copy_sequence(text, tmux=self._display_options.tmux)
        if sequence is None:
            self.say("too long for the clipboard")
        elif queued_writes(self) <= DEEP:
            self.write(sequence)
            self.say(f"to the clipboard: {text}")

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

    def leave(self) -> None:
        """Leave, but ask first where the engine ends too and others than test traffic would lose their
        answers."""
        lost = self._requests_of_others()
        below = self.screen
        if not lost or not isinstance(below, ConsoleScreen):
            self.leave_now(0)
            return
        lines = [
            safe(f"{lost} request{'s' if lost != 1 else ''} of clients are being served by this engine."),
            safe("The engine ends with the console; their clients would get an error."),
        ]
        rows = question_rows(
            "Leave?", lines, "y: end the engine and leave", "any other key: stay", self.size.width
        )
        self.push_screen(QuestionScreen(below, rows))

    def leave_now(self, status: int) -> None:
        """An answer that is still under way would be typed into the shell: it is waited for, a moment."""
        self._guard_exit(status)
        self.pacer.leave()
        self._leave_at(status, time.monotonic() + ANSWER_S)

    def _leave_at(self, status: int, deadline_s: float) -> None:
        if self.pacer.awaiting and self.pacer.measured and time.monotonic() < deadline_s:
            self.set_timer(0.02, lambda: self._leave_at(status, deadline_s))
            return
        self._give_title_back()
        self.exit(status, return_code=status)

    def _requests_of_others(self) -> int:
        picture = self.collector.picture
        if not self._embedded or picture.totals is None or picture.link.state != "live":
            return 0
        served = (picture.totals.running or 0) + (picture.totals.waiting or 0)
        test = picture.fleet.traffic.in_flight if picture.fleet is not None else 0
        return max(0, served - test)

    def _fatal_error(self) -> None:
        """Our own crash: a plain traceback, escaped, without the locals that Textual would print."""
        self._guard_exit(1)
        self._give_title_back()
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
            self.collector.watch_timeline(interest.timeline)
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

    def next_alarm(self) -> None:
        alarms = ordered_alarms(self.shown_picture)
        if not alarms:
            self.say("no alarm")
            return
        self._alarm = (self._alarm + 1) % len(alarms)
        alarm = alarms[self._alarm]
        self.say(f"alarm {self._alarm + 1} of {len(alarms)}: {alarm.text}")
        if alarm.replica is None:
            return
        if isinstance(self.screen, ConsoleScreen) and self.screen.name_in_look == "replica":
            self.look.replica = alarm.replica
        else:
            ids = pane_ids(self.shown_picture, self.look, "fleet", "replicas")
            self.look.cursor("fleet", "replicas").select(ids, alarm.replica)
            self.look.focus["fleet"] = "replicas"
            self.go("fleet")
        self.frame()

    # --- when the operator looks

    def toggle_pause(self) -> None:
        """Freeze what is shown, or back to now; of a recording, play or stop."""
        if self.time.is_replay:
            self.time.toggle_playing()
        elif self.time.is_live:
            self.time.pause()
        else:
            self.time.resume()
        self.frame()

    @property
    def fleet_names(self) -> tuple[str, ...]:
        return ()

    def show_fleet(self, name: str) -> None:
        """One of ``fleet_names``."""

    def back_to_now(self) -> None:
        self.time.resume()
        self.frame()

    def step_time(self, by_s: float) -> None:
        self.time.play(None)
        if not self.time.step(by_s):
            self.say("nothing of the past is kept here")
        self.frame()

    def jump_to(self, at: float) -> None:
        """Show a moment (Unix seconds) on all screens; the nearest that is kept."""
        self.time.play(None)
        if not self.time.jump(at):
            self.say("nothing of the past is kept here")
        self.frame()

    def go_to_mark(self, by: int) -> None:
        mark = self.time.next_mark(by)
        self.say(f"{mark.sign} {mark.text}" if mark is not None else "no mark there")

    def mark_time(self) -> None:
        mark = self.time.mark()
        self.say(f"{mark.text} is set; e exports from here" if mark is not None else "no time is kept here")

    def _play(self) -> None:
        """A recording goes on."""
        if self.time.tick(PLAY_S):
            self.frame()

    def export_now(self) -> None:
        """What happened since the last own mark, or in the last ten minutes, into a new file."""
        from_at, to_at = self.time.span_to_export()
        fleet = self.collector.picture.fleet
        self.export(from_at, to_at, new_file(fleet.name if fleet is not None else "", to_at))

    def export(self, from_at: float, to_at: float, path: Path, *, redact: bool = True) -> None:
        """Write that time (Unix seconds) as a recording, in the background; request ids and tenants are
        hashed where ``redact`` is given. What became of it is said in the key bar."""
        if self._past is None:
            self.say("nothing of the past is kept here")
            return
        self.say(f"writing {path}")
        future = self._past.export(from_at, to_at, path, redact=redact)
        future.add_done_callback(
            lambda done: self._event_loop.call_soon_threadsafe(self._exported, done, path)
        )

    def _exported(self, future: "Future[Exported]", path: Path) -> None:
        error = future.exception()
        if error is not None:
            self.say(f"not exported: {error}")
            return
        done = future.result()
        self.say(f"{path}: {done.messages:,} messages, {done.bytes / 1000:,.0f} kB")

    def show_diff(self, a: str, b: str) -> str | None:
        """Two moments or two replicas beside each other, in a box; returns why not."""
        below = self.screen
        if not isinstance(below, ConsoleScreen):
            return "close what is open first"
        try:
            sides = [self._side(word) for word in (a, b)]
        except SideError as error:
            return str(error)
        self.push_screen(DiffScreen(below, sides[0], sides[1]))
        return None

    def _side(self, word: str) -> Side:
        at_now = self.now()
        replica, at = parse_side(word, at_now)
        picture = self.shown_picture if at is None else self.time.picture_at(at)
        return side_of(word, picture, replica)

    @property
    def theme_names(self) -> tuple[str, ...]:
        return tuple(self._themes)

    def next_theme(self) -> None:
        names = list(self._themes)
        self.use_theme(names[(names.index(self._theme_name) + 1) % len(names)])

    def use_theme(self, name: str) -> None:
        """One of ``theme_names``."""
        self._theme_name = name
        screen = self.screen
        if isinstance(screen, PaintedScreen):
            screen.canvas.use_theme(self.theme_now)
        self.say(f"theme: {self._theme_name}")

    def _heartbeat(self) -> None:
        self._follow_theme()
        self._call_attention()
        self.pacer.beat()

    def _follow_theme(self) -> None:
        """Somebody who edits the theme's file sees at once what it does."""
        theme = self.theme_now
        try:
            written = reloaded(theme)
        except ThemeError as error:
            self.say(f"theme {error}")
            written = at_present(theme)  # said once: it is looked at again when it is written again
        if written is not None:
            self._themes[self._theme_name] = written
            if isinstance(self.screen, PaintedScreen):
                self.screen.canvas.use_theme(written)

    def say(self, text: str, for_s: float = NOTICE_S) -> None:
        """A short notice in place of the key bar."""
        self._notice = (safe(text, 200), time.monotonic() + for_s)
        self.frame()

    def open_filter(self) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(FilterScreen(self.screen))

    def open_command(self, text: str = "") -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(CommandScreen(self.screen, text))

    def open_palette(self) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(PaletteScreen(self.screen))

    def open_kinds(self) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(KindsScreen(self.screen))

    def open_operation(self, operation: str) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(OperationScreen(self.screen, operation))

    def open_help(self, about: ScreenName) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(HelpScreen(self.screen, about))

    # --- what the operator does

    def act(self, name: str, replica: str | None, request: str | None, tenant: str | None = None) -> None:
        """Open an action's dialog on the id that is selected now."""
        below = self.screen
        if not isinstance(below, ConsoleScreen):
            return
        if self.look.paused:
            self.say("paused: action keys are off; p goes on")
            return
        picture = self.collector.picture
        action = registry.action(switched(name, picture, replica))
        if action.name == "undrain" and self.undos and not is_out(picture, replica):
            self.undo()
            return
        chosen = {"replica": replica, "replica or fleet": replica, "request": request, "tenant": tenant}
        target = chosen.get(action.target)
        finding = proposed(picture, action.name) if action.target == "tenant" and target is None else None
        if finding is not None and finding.action is not None:
            self.open_action(action, finding.action.target, dict(finding.action.params))
            return
        if target is None and action.target != "fleet":
            kind = action.target.partition(" ")[0]
            why = " (it may just have ended)" if kind == "request" else ""
            self.say(f"no {kind} is selected{why}; j and k move the cursor")
            return
        self.open_action(action, target, given_now(action.name, picture, target))

    def undo(self) -> None:
        """The plan of what takes the last action of this console back."""
        if not self.undos:
            self.say("nothing was done from here that can be taken back")
            return
        undo = self.undos.pop()
        self.open_action(registry.action(undo.action), undo.target, undo.given)

    def remember(self, undo: Undo) -> None:
        self.undos.append(undo)

    def open_action(self, action: Action, target: str | None, given: Given) -> None:
        """An action's dialog, or why there is none now."""
        below = self.screen
        if not isinstance(below, ConsoleScreen):
            return
        picture = self.collector.picture
        refusal = action.allowed(picture, target)
        if refusal is not None:
            self.say(refusal)
            return
        own = self.look.keymap.get(action.name)
        if own and action.key:
            action = dataclasses.replace(action, key=own[0])
        self.push_screen(ActionScreen(below, action, target, given))


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
