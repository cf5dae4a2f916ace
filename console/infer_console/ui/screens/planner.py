"""The napkin arithmetic, answered as it is asked."""

import threading

from infer_engine.planner import ConfigShape, PlanError
from infer_engine.protocol import MOST_SENTENCE
from textual import events
from textual.message import Message

from infer_console.planning.config_file import read_config
from infer_console.planning.fields import MOST_PATH
from infer_console.state.picture import Picture
from infer_console.terminal.pastes import taken
from infer_console.ui.screens.base import PAGE, ConsoleScreen, Interest, actions_of
from infer_console.view.kv_grid_form import KvGridForm
from infer_console.view.look import Size
from infer_console.view.planner_form import PlannerForm
from infer_console.view.planner_screen import kv_grid_screen, planner_screen
from infer_console.view.planner_taken import take_over
from infer_console.view.row import Row

FAR = 1_000_000
NOTHING_TOLD = "the engine tells neither a known model nor its marks"


class ConfigRead(Message):
    """A model's file was read, or could not be."""

    def __init__(self, path: str, outcome: ConfigShape | PlanError) -> None:
        super().__init__()
        self.path = path
        self.outcome = outcome


class PlannerScreen(ConsoleScreen):
    name_in_look = "planner"
    actions = actions_of("planner")

    def __init__(self) -> None:
        super().__init__()
        self.form = PlannerForm()
        #: One file is read at a time, on a thread that may hang on a dead disk and nothing else with it.
        self._reading: str | None = None
        #: What is watched was asked for already: it is by itself once, before anything else was.
        self._taken = False

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        if not self._taken and picture.fleet is not None:
            self._taken = True
            if not self.form.edited:
                take_over(self.form, picture, self.console.look.replica)
        if self.grid.open:
            # Its tokens are no matter of the moment that is shown.
            found = self.console.collector.picture.sentence
            return kv_grid_screen(
                picture, self.console.look, self.form, found, size, now, self.console.notice
            )
        return planner_screen(picture, self.console.look, self.form, size, now, self.console.notice)

    def interest(self, picture: Picture) -> Interest:
        return Interest((), (), sentence=self.grid.sentence)

    @property
    def grid(self) -> KvGridForm:
        return self.console.look.kv_grid

    def target_replica(self) -> str | None:
        return None

    # --- keys

    async def press(self, key: events.Key) -> None:
        if self.grid.open:
            if not self._typed(key.key, key.character):
                await super().press(key)
            self.paint()
        elif self._edited(key.key, key.character):
            self._read_wanted()
            self.paint()
        else:
            await super().press(key)

    def _typed(self, key: str, character: str | None) -> bool:
        """A key that is the sentence's: while it is typed, all that can be typed."""
        grid = self.grid
        if not grid.typing:
            grid.typing = key == "enter"
            return grid.typing
        match key:
            case "enter" | "escape" | "tab":
                grid.finish()
            case "backspace":
                grid.erase()
            case _:
                if character is None or not character.isprintable():
                    return False
                grid.type(character)
        return True

    def _edited(self, key: str, character: str | None) -> bool:
        """A key that is the form's. In a field for text all that can be typed is."""
        form = self.form
        match key:
            case "down" | "tab" | "enter":
                form.move(1)
            case "up" | "shift+tab":
                form.move(-1)
            case "left" | "right" if not form.takes_text:
                form.step(1 if key == "right" else -1)
            case "space" if form.focused.param.kind == "choice":
                form.step(1)
            case "backspace":
                form.erase()
            case "escape" if form.takes_text:
                form.move(-1)
            case _:
                return character is not None and character.isprintable() and form.type(character)
        return True

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted is typed: its first line, as far as the field takes it."""
        line, left_out = taken(event.text, MOST_SENTENCE if self.grid.open else MOST_PATH)
        if left_out:
            self.console.say(left_out)
        if self.grid.open:
            self.grid.typing = True
            self.grid.type(line)
            self.paint()
            return
        for character in line:
            if character.isprintable():
                self.form.type(character)
        self._read_wanted()
        self.paint()

    def action_down(self) -> None:
        self._move(1)

    def action_up(self) -> None:
        self._move(-1)

    def _move(self, by: int) -> None:
        if self.grid.open:
            self._scroll(by)
            return
        self.form.move(by)
        self.paint()

    def action_page_down(self) -> None:
        self._scroll(PAGE)

    def action_page_up(self) -> None:
        self._scroll(-PAGE)

    def action_top(self) -> None:
        self._scroll(-FAR)

    def action_bottom(self) -> None:
        self._scroll(FAR)

    def _scroll(self, by: int) -> None:
        """Drawing knows how far it can go, and the next key may have come with this one."""
        if self.grid.open:
            self.grid.scrolled += by
        else:
            self.form.scrolled += by
        self.rows_now()
        self.paint()

    def action_kv_grid(self) -> None:
        """There and back."""
        if self.grid.open:
            self.grid.close()
        else:
            self.grid.show()
        self.paint()

    def action_decode(self, by: int) -> None:
        if self.grid.open:
            self.grid.step(by)
            self.paint()
        else:
            self.console.say("v shows the KV grid, where decode is played")

    def action_as_watched(self) -> None:
        """Ask for what is watched."""
        taken = take_over(self.form, self.console.shown_picture, self.console.look.replica)
        self.console.say(f"taken from the engine: {', '.join(taken)}" if taken else NOTHING_TOLD)

    def action_less(self) -> None:
        """← and → are the form's before they are keys of the screen."""

    action_more = action_less

    def action_back(self) -> None:
        if self.grid.open:
            self.action_kv_grid()
        else:
            self.console.go("fleet")

    # --- the model's file

    def _read_wanted(self) -> None:
        """Read the file that is asked for, where that is another than was read, and none is being read."""
        path = self.form.wanted_path
        if not path or path == self.form.path or self._reading is not None:
            return
        self._reading = path
        threading.Thread(target=self._read, args=(path,), name="config.json", daemon=True).start()

    def _read(self, path: str) -> None:
        """On a thread of its own."""
        try:
            outcome = read_config(path)
        except PlanError as error:
            outcome = error
        if self.is_running:
            self.post_message(ConfigRead(path, outcome))

    def on_config_read(self, message: ConfigRead) -> None:
        self._reading = None
        if message.path == self.form.wanted_path:
            self.form.read(message.path, message.outcome)
        self._read_wanted()
        if self.is_current:
            self.paint()
