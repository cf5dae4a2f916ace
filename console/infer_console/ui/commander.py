"""Does what the command line and the palette ask for, with what the keys do it with."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast, get_args

from infer_engine.protocol import MOST_SENTENCE

from infer_console.actions.opening import given_now
from infer_console.commands.known import Known
from infer_console.commands.parse import Asked, CommandError
from infer_console.habits.history import add_to_history, history_path, read_history
from infer_console.habits.views import (
    NAME,
    SavedView,
    ViewError,
    apply_view,
    read_views,
    save_view,
    view_of,
    views_path,
)
from infer_console.past.files import named_file, new_file
from infer_console.ui.screenshot import checked, write_screenshot
from infer_console.view.columns import ColumnChoice
from infer_console.view.diff import SideError
from infer_console.view.look import MAX_FILTER, FleetSort, Lens, RequestSort, RosterSort, ScreenName
from infer_console.view.tables import TABLES, column_names

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp
    from infer_console.ui.screens.base import ConsoleScreen

USUAL_SPAN = "-10m..now"


class Commander:
    """``troubles`` are what could not be read at the start."""

    def __init__(self, app: "ConsoleApp") -> None:
        self._app = app
        self.troubles: list[str] = []
        self.history: list[str] = []
        self.views: dict[str, SavedView] = {}
        try:
            self.history = read_history(history_path())
        except OSError as error:
            self.troubles.append(f"history: {error}")
        try:
            self.views = read_views(views_path())
        except ViewError as error:
            self.troubles.append(f"views: {error}")
        self._runs: dict[str, Callable[[Asked, ConsoleScreen], None]] = {
            "fleet": self._fleet,
            "replica": self._replica,
            "filter": self._filter,
            "sort": self._sort,
            "columns": self._columns,
            "lens": self._lens,
            "theme": lambda asked, _screen: app.theming.use(asked.values["theme"]),
            "save": self._save,
            "view": self._view,
            "export": self._export,
            "screenshot": self._screenshot,
            "sentence": self._sentence,
            "diff": self._diff,
            "at": lambda asked, _screen: app.looking_back.jump_to(
                app.looking_back.moment(asked.values["moment"])
            ),
            "undo": lambda _asked, _screen: app.acting.undo(),
            "help": lambda _asked, screen: app.overlays.help(screen.name_in_look),
            "palette": lambda _asked, _screen: app.overlays.palette(),
            "q": lambda _asked, _screen: app.departure.leave(),
        }

    def known(self, screen: "ConsoleScreen") -> Known:
        """Names of the moment that is shown."""
        app = self._app
        return Known(
            picture=app.shown_picture,
            screen=screen.name_in_look,
            themes=app.theming.names,
            views=tuple(sorted(self.views)),
            fleets=app.fleets.names,
            columns=column_names(app.shown_picture, app.look, screen.name_in_look),
        )

    def remember(self, line: str) -> None:
        """In the history, of other consoles of this user too."""
        try:
            self.history = add_to_history(history_path(), line)
        except OSError as error:
            self.history = [*self.history, line][-100:]
            self._app.say(f"the history is not kept: {error}")

    def check(self, asked: Asked, screen: "ConsoleScreen") -> None:
        """Raise CommandError for what could not be done, before the line is closed."""
        values, looking_back = asked.values, self._app.looking_back
        try:
            match asked.entry.name:
                case "at":
                    looking_back.moment(values["moment"])
                case "export":
                    looking_back.span(values.get("span", USUAL_SPAN))
                    named_file(values.get("file", ""))
                case "screenshot":
                    if "file" in values:
                        checked(named_file(values["file"]))
                case "diff":
                    for side in (values["a"], values["b"]):
                        looking_back.side(side)
                case "columns":
                    self._changes(values.get("changes", ""), screen)
                case "save":
                    if not NAME.fullmatch(values["name"]):
                        raise ValueError(
                            f"{values['name'][:40]!r} was given, allowed are 32 letters, digits, - _"
                        )
                case "filter":
                    if len(values.get("expression", "")) > MAX_FILTER:
                        raise ValueError(f"the expression is longer than {MAX_FILTER} characters")
                case "sentence":
                    if len(values.get("text", "")) > MOST_SENTENCE:
                        raise ValueError(f"it is longer than {MOST_SENTENCE} characters")
                case _:
                    pass
        except (ValueError, SideError) as error:
            raise CommandError(f"{asked.entry.name}: {error}") from error

    def run(self, asked: Asked, screen: "ConsoleScreen") -> None:
        """``asked`` was checked, and the command line is closed."""
        if asked.action is not None:
            self._open(asked, screen)
        elif asked.entry.name in self._runs:
            self._runs[asked.entry.name](asked, screen)
        else:
            self._app.go(cast("ScreenName", asked.entry.name))
        self._app.frame()

    def _open(self, asked: Asked, screen: "ConsoleScreen") -> None:
        """The plan of an action, filled with what was given; without a name, on what is under the cursor."""
        app, action = self._app, asked.action
        assert action is not None
        if app.look.paused:
            replayed = "this is a recording: nothing acts on it"
            app.say(replayed if app.time.is_replay else "paused: nothing acts on the past; p goes on")
            return
        target = asked.target
        selected = {
            "replica": screen.target_replica,
            "request": screen.target_request,
            "tenant": screen.target_tenant,
        }
        if target is None and action.target in selected:
            target = selected[action.target]()
            if target is None:
                app.say(f"{action.name}: no {action.target} is named, and none is selected")
                return
        given = {**given_now(action.name, app.collector.picture, target), **asked.given}
        app.acting.open_action(action, target, given)

    # --- commands that only look

    def _fleet(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        name = asked.values.get("name")
        if name is not None:
            self._app.fleets.show(name)
        self._app.go("fleet")

    def _replica(self, asked: Asked, screen: "ConsoleScreen") -> None:
        chosen = asked.values.get("replica") or screen.target_replica()
        if chosen is not None:
            self._app.look.replica = chosen
        self._app.go("replica")

    def _filter(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        self._app.look.filter = asked.values.get("expression", "")

    def _sort(self, asked: Asked, screen: "ConsoleScreen") -> None:
        look, column = self._app.look, asked.values["column"]
        match screen.name_in_look:
            case "fleet":
                look.fleet_sort = cast("FleetSort", column)
            case "replica":
                look.roster_sort = cast("RosterSort", column)
            case _:
                look.request_sort = cast("RequestSort", column)
        self._app.say(f"sorted by {column}")

    def _lens(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        lens = asked.values["lens"]
        assert lens in get_args(Lens)
        self._app.look.lens = cast("Lens", lens)
        self._app.say(f"lens: {lens}")

    def _columns(self, asked: Asked, screen: "ConsoleScreen") -> None:
        table = TABLES[screen.name_in_look]
        columns = self._app.look.columns
        changes = self._changes(asked.values.get("changes", ""), screen)
        if changes:
            columns[table] = columns.get(table, ColumnChoice()).changed(changes)
        else:
            columns.pop(table, None)

    def _changes(self, words: str, screen: "ConsoleScreen") -> list[str]:
        names = column_names(self._app.shown_picture, self._app.look, screen.name_in_look)
        if screen.name_in_look not in TABLES:
            raise ValueError(
                f"the columns of {', '.join(TABLES)} can be chosen, not those of {screen.name_in_look}"
            )
        for word in words.split():
            if word[0] not in "+-" or word[1:] not in names:
                allowed = ", ".join(names)
                raise ValueError(f"{word[:40]!r} was given, allowed is + or - before one of {allowed}")
        return words.split()

    def _save(self, asked: Asked, screen: "ConsoleScreen") -> None:
        name = asked.values["name"]
        try:
            self.views = save_view(views_path(), name, view_of(self._app.look, screen.name_in_look))
        except ViewError as error:
            self._app.say(f"not saved: {error}")
        else:
            self._app.say(f"saved as {name}; :view {name} comes back to it")

    def _view(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        view = self.views[asked.values["name"]]
        apply_view(view, self._app.look)
        self._app.go(view.screen)

    def _export(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        app, values = self._app, asked.values
        from_at, to_at = app.looking_back.span(values.get("span", USUAL_SPAN))
        fleet = app.collector.picture.fleet
        name = values.get("file")
        fleet_name = fleet.name if fleet is not None else ""
        try:
            path = named_file(name) if name else new_file(fleet_name, to_at)
        except OSError as error:
            app.say(f"not exported: {error}")
        else:
            app.looking_back.export(from_at, to_at, path, redact="names" not in values)

    def _screenshot(self, asked: Asked, screen: "ConsoleScreen") -> None:
        """Of the screen that the command line was over."""
        app, name = self._app, asked.values.get("file")
        fleet = app.collector.picture.fleet
        fleet_name = fleet.name if fleet is not None else ""
        try:
            path = named_file(name) if name else new_file(fleet_name, app.now(), ending=".svg")
            written = write_screenshot(path, screen.rows_now(), app.theme_now)
        except OSError as error:
            app.say(f"no screenshot: {error.filename or name}: {error.strerror or error}")
        else:
            app.say(f"{path}: {written / 1000:,.0f} kB")

    def _sentence(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        self._app.look.kv_grid.show(asked.values.get("text", ""))
        self._app.go("planner")

    def _diff(self, asked: Asked, _screen: "ConsoleScreen") -> None:
        why_not = self._app.looking_back.show_diff(asked.values["a"], asked.values["b"])
        if why_not is not None:
            self._app.say(why_not)
