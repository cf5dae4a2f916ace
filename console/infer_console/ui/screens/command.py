"""The command line and the palette: what is typed is parsed here and done by the commander. The screen below
stays live."""

from textual import events

from infer_console.commands.complete import Found, palette
from infer_console.commands.line import CommandLine
from infer_console.commands.parse import CommandError, parse
from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.overlay import OverlayScreen
from infer_console.view.command_line import command_rows, palette_rows
from infer_console.view.look import Size
from infer_console.view.row import Row

MAX_SEARCH = 64


class CommandScreen(OverlayScreen):
    def __init__(self, below: ConsoleScreen, text: str = "") -> None:
        super().__init__(below)
        self.line = CommandLine(below.console.commander.history)
        self.line.set(text)

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        rows = self.below.draw(picture, size, now)
        known = self.console.commander.known(self.below)
        over = command_rows(self.line, known, size.width)[-size.height :]
        return [*rows[: len(rows) - len(over)], *over]

    def takes_paste(self) -> bool:
        return True

    def pressed(self, event: events.Key) -> None:
        line = self.line
        match event.key:
            case "escape":
                self.close()
            case "enter":
                self._entered()
            case "tab" | "shift+tab":
                line.complete(self.console.commander.known(self.below), 1 if event.key == "tab" else -1)
            case "up":
                line.older()
            case "down":
                line.older(-1)
            case "backspace":
                if line.text:
                    line.backspace()
                else:
                    self.close()
            case "left" | "right":
                line.move(1 if event.key == "right" else -1)
            case "home" | "ctrl+a":
                line.move(-len(line.text))
            case "end" | "ctrl+e":
                line.move(len(line.text))
            case "delete":
                line.delete()
            case "ctrl+w":
                line.delete_word()
            case "ctrl+u":
                line.set("")
            case _:
                if event.character is not None and event.character.isprintable():
                    line.type(event.character)

    def _entered(self) -> None:
        text = self.line.text.strip()
        if not text:
            self.close()
            return
        commander = self.console.commander
        try:
            asked = parse(text, commander.known(self.below))
            commander.check(asked, self.below)
        except CommandError as error:
            self.line.error = str(error)
            return
        commander.remember(text)
        self.close()
        commander.run(asked, self.below)


class PaletteScreen(OverlayScreen):
    """Commands that are searched for; one that wants more words is finished on the command line."""

    def __init__(self, below: ConsoleScreen) -> None:
        super().__init__(below)
        self._search = ""
        self._at = 0

    def _found(self) -> list[Found]:
        return palette(self._search, self.console.commander.known(self.below))

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        found = self._found()
        self._at = max(0, min(self._at, len(found) - 1))
        return palette_rows(self._search, found, self._at, size.width, size.height)

    def takes_paste(self) -> bool:
        return True

    def pressed(self, event: events.Key) -> None:
        match event.key:
            case "escape" | "ctrl+p":
                self.close()
            case "enter":
                self._entered()
            case "down" | "tab":
                self._at = min(self._at + 1, max(0, len(self._found()) - 1))
            case "up" | "shift+tab":
                self._at = max(0, self._at - 1)
            case "backspace":
                self._search, self._at = self._search[:-1], 0
            case _:
                if event.character is not None and event.character.isprintable():
                    self._search, self._at = (self._search + event.character)[:MAX_SEARCH], 0

    def _entered(self) -> None:
        found = self._found()
        if not found:
            return
        chosen = found[min(self._at, len(found) - 1)]
        commander = self.console.commander
        try:
            asked = parse(chosen.line, commander.known(self.below)) if chosen.whole else None
            if asked is not None:
                commander.check(asked, self.below)
        except CommandError:
            asked = None  # the line says what it lacks
        self.close()
        if asked is None:
            self.console.overlays.command(f"{chosen.line} ")
        else:
            commander.remember(chosen.line)
            if asked.entry.name == "q":  # one Enter in a list: what it would end is asked about
                self.console.departure.leave(tests_too=True)
            else:
                commander.run(asked, self.below)
