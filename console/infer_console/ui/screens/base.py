"""What the screens share: a canvas, the keys of the key table, and repainting."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap
from textual.screen import Screen

from infer_console.actions.cancel import find_request
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import safe
from infer_console.ui.backpressure import is_behind
from infer_console.ui.widgets.canvas import Canvas, RenderedLines
from infer_console.view.bindings import acts, keys_of, where_it_acts
from infer_console.view.border import bordered, inside
from infer_console.view.look import PANES, Cursor, Keymap, Pane, ScreenName, Size
from infer_console.view.order import follow, pane_ids
from infer_console.view.row import Row, plain
from infer_console.view.scrubber import scrub_row

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp

PAGE = 10
#: Screens less high have no row for the time; the banner tells it.
LEAST_FOR_TIME = 6


class Interest(NamedTuple):
    """Replicas of which details are wanted, and which; whether the list of all requests is, or who waits
    longest and what tenants may use; and whose timeline; what to cut into tokens."""

    replicas: tuple[str, ...]
    detail: tuple[str, ...]
    listing: bool = False
    demand: bool = False
    timeline: str | None = None
    sentence: str | None = None


def actions_of(screen: ScreenName, keymap: Keymap | None = None) -> dict[str, str]:
    """The action of each key of one screen, by Textual's name of the key."""
    bindings = BindingsMap([Binding(key.key, key.action) for key in keys_of(screen, keymap)])
    return {key: bound[0].action for key, bound in bindings.key_to_bindings.items()}


class PaintedScreen(Screen[None]):
    """A screen that is one canvas."""

    DEFAULT_CSS = "PaintedScreen { overflow: hidden; background: transparent; }"

    _canvas: Canvas | None = None

    def __init__(self) -> None:
        super().__init__()
        self._styles_cache = RenderedLines()

    @property
    def console(self) -> "ConsoleApp":
        return cast("ConsoleApp", self.app)

    def compose(self) -> ComposeResult:
        self._canvas = Canvas(self.console.theme_now)
        yield self._canvas

    @property
    def canvas(self) -> Canvas:
        """Raise RuntimeError before the screen is composed."""
        if self._canvas is None:
            raise RuntimeError("the screen is not composed yet")
        return self._canvas

    async def press(self, key: events.Key) -> None:
        """A key, when this screen is on top. It is done with when this returns."""
        raise NotImplementedError

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        """The rows to show: ``size.height`` of them."""
        raise NotImplementedError

    def paint(self) -> int:
        """Bring the canvas up to date; returns how many rows changed. A screen that is still being put
        together is painted when it is mounted, what keys changed once those are done, and where the terminal
        is behind the next frame shows it all."""
        if self._canvas is None or self.console.presses.puts_off():
            return 0
        if is_behind(self.app):
            self.console.look.skipped_frames += 1
            return 0
        return self._canvas.show(self.rows_now())

    def rows_now(self) -> list[Row]:
        """The whole screen as it is to be shown."""
        size = Size(max(1, self.app.size.width), max(1, self.app.size.height))
        if not self.console.shown_picture.environment.production:
            return self._with_time(size)
        return bordered(self._with_time(inside(size)), size.width)

    def _with_time(self, size: Size) -> list[Row]:
        """The screen, and in the past the row of time above its last one."""
        console = self.console
        scrub = console.look.scrub = console.time.scrub()
        if scrub is None or size.height < LEAST_FOR_TIME:
            return self.draw(console.shown_picture, size, console.now())
        rows = self.draw(console.shown_picture, size._replace(height=size.height - 1), console.now())
        return [*rows[:-1], scrub_row(scrub, size.width), rows[-1]]

    def on_mount(self) -> None:
        self.paint()

    def on_resize(self) -> None:
        self.paint()

    def on_screen_resume(self) -> None:
        self.canvas.use_theme(self.console.theme_now)
        self.paint()

    def on_screen_suspend(self) -> None:
        if self._canvas is not None and not self.is_current:  # it may be on top again by now
            self._canvas.let_go()


class ConsoleScreen(PaintedScreen):
    """Fleet, Replica or Streams: panes with cursors."""

    name_in_look: ClassVar[ScreenName] = "fleet"
    actions: ClassVar[dict[str, str]] = {}
    #: The same with the operator's keymap; made when the first key is pressed.
    _mapped: dict[str, str] | None = None

    async def press(self, key: events.Key) -> None:
        if self._mapped is None:
            keymap = self.console.look.keymap
            self._mapped = actions_of(self.name_in_look, keymap) if keymap else self.actions
        action = self._mapped.get(key.key)
        if action is not None:
            await self.app.run_action(action, self)
        elif acts(key.key, self.console.look.keymap):
            if self.console.collector.picture.read_only:
                self.console.acting.say_off(key.key)  # of another screen, where it would do nothing either
            else:
                self.console.say(where_it_acts(key.key, self.console.look.keymap))

    def interest(self, picture: Picture) -> Interest:
        """What this screen shows beyond the fleet's summary."""
        return Interest((), ())

    def paint(self) -> int:
        if self.is_current:
            self.console.look_at(self.interest(self.console.shown_picture))
        return super().paint()

    # --- cursors

    def focused_ids(self) -> tuple[Pane | None, list[str]]:
        pane = self.console.look.pane(self.name_in_look)
        if pane is None:
            return None, []
        return pane, pane_ids(self.console.shown_picture, self.console.look, self.name_in_look, pane)

    def focused_cursor(self) -> Cursor | None:
        """The focused pane's cursor, up to date."""
        pane, ids = self.focused_ids()
        if pane is None:
            return None
        return follow(self.console.shown_picture, self.console.look, self.name_in_look, pane, ids)

    def _move(self, by: int) -> None:
        pane, ids = self.focused_ids()
        if pane is not None:
            self.console.look.cursor(self.name_in_look, pane).move(ids, by)
            self.paint()

    def action_down(self) -> None:
        self._move(1)

    def action_up(self) -> None:
        self._move(-1)

    def action_page_down(self) -> None:
        self._move(PAGE)

    def action_page_up(self) -> None:
        self._move(-PAGE)

    def action_top(self) -> None:
        self._move(-1_000_000)

    def action_bottom(self) -> None:
        self._move(1_000_000)

    def action_next_pane(self) -> None:
        self.console.look.next_pane(self.name_in_look)
        self.paint()

    def action_previous_pane(self) -> None:
        if PANES[self.name_in_look]:
            self.console.look.next_pane(self.name_in_look, -1)
        self.paint()

    # --- where the operator goes

    def action_back(self) -> None:
        """The filter goes first, and then the screen."""
        if self.console.look.filter:
            self.console.look.filter = ""
            self.paint()
        else:
            self.console.go("fleet")

    def action_fleet(self) -> None:
        self.console.go("fleet")

    def action_replica(self) -> None:
        self.console.go("replica")

    def action_streams(self) -> None:
        self.console.go("streams")

    def action_requests(self) -> None:
        self.console.go("requests")

    def action_events(self) -> None:
        self.console.go("events")

    def action_traffic(self) -> None:
        self.console.go("traffic")

    def action_planner(self) -> None:
        self.console.go("planner")

    def action_doctor(self) -> None:
        self.console.go("doctor")

    def action_next_alarm(self) -> None:
        self.console.alarms.next()

    def action_filter(self) -> None:
        self.console.overlays.filter()

    def action_command(self) -> None:
        self.console.overlays.command()

    def action_fleets(self) -> None:
        self.console.fleets.open()

    def action_next_fleet(self) -> None:
        self.console.fleets.next()

    def action_palette(self) -> None:
        self.console.overlays.palette()

    def action_kinds(self) -> None:
        self.console.overlays.kinds()

    def action_pause(self) -> None:
        self.console.looking_back.toggle_pause()

    def action_step(self, by_s: float) -> None:
        self.console.looking_back.step_time(by_s)

    def action_to_mark(self, by: int) -> None:
        self.console.looking_back.go_to_mark(by)

    def action_mark_time(self) -> None:
        self.console.looking_back.mark_time()

    def action_end(self) -> None:
        if self.console.time.is_live:
            self.action_bottom()
        else:
            self.console.looking_back.back_to_now()

    def action_export(self) -> None:
        self.console.looking_back.export_now()

    def action_theme(self) -> None:
        self.console.theming.next()

    def action_help(self) -> None:
        self.console.overlays.help(self.name_in_look)

    def action_copy(self) -> None:
        """The id under the cursor; of an event, whose id nobody uses, its line."""
        cursor = self.focused_cursor()
        if cursor is None or cursor.id is None:
            self.console.say("nothing is under the cursor to copy")
            return
        line = next((row for row in self.rows_now() if any(span.tone == "cursor" for span in row)), None)
        if self.console.look.pane(self.name_in_look) == "events" and line is not None:
            self.console.calling.copy(safe(plain(line).strip("▸ ")))
        else:
            self.console.calling.copy(safe(cursor.id))

    def action_redraw(self) -> None:
        self.console.redraw()

    def action_quit(self) -> None:
        self.console.departure.leave()

    # --- what the operator does

    def target_replica(self) -> str | None:
        """The replica that an action would be about."""
        return self.console.look.replica

    def target_request(self) -> str | None:
        """The request that an action would be about."""
        return None

    def target_tenant(self) -> str | None:
        """The tenant that an action would be about: that of the request under the cursor."""
        row = find_request(self.console.shown_picture, self.target_request())
        return row.tenant if row is not None else None

    def action_mark(self) -> None:
        """Pick the request under the cursor for the Streams screen."""
        request = self.target_request()
        if request is not None:
            self.console.look.mark(request)
            self.action_down()

    def action_act(self, name: str) -> None:
        self.console.acting.act(name, self.target_replica(), self.target_request(), self.target_tenant())
