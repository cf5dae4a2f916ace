"""Boxes over a screen: help, questions, the filter line. They take all keys; what is below stays live."""

from textual import events

from infer_console.actions.action import read_only_words
from infer_console.state.picture import Picture
from infer_console.terminal.pastes import taken
from infer_console.terminal.safe_text import safe
from infer_console.ui.screens.base import ConsoleScreen, PaintedScreen
from infer_console.view.help import help_rows
from infer_console.view.look import MAX_FILTER, ScreenName, Size
from infer_console.view.row import Row, Shown, overlay

#: As long as the longest line that takes it.
MAX_PASTE = 512
#: In the place of a key's name: none that anything is bound to.
PASTED = "pasted"


class OverlayScreen(PaintedScreen):
    """``below`` is drawn first, the box over its middle."""

    def __init__(self, below: ConsoleScreen) -> None:
        super().__init__()
        self.below = below

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        """The box's rows; none for an overlay that changes the screen below instead."""
        return []

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return overlay(self.below.draw(picture, size, now), self.box(picture, size, now), size.width)

    async def press(self, key: events.Key) -> None:
        self.pressed(key)
        if self.is_current:
            self.paint()

    def pressed(self, event: events.Key) -> None:
        """A key, whatever it is."""
        raise NotImplementedError

    def takes_paste(self) -> bool:
        """Whether text is being typed: else what is pasted is no key."""
        return False

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted is typed: its first line."""
        if not self.is_current or not self.takes_paste():
            return
        line, left_out = taken(event.text, MAX_PASTE)
        for character in line:
            if character.isprintable():
                self.pressed(events.Key(PASTED, character))
        if left_out:
            self.console.say(left_out)
        self.paint()

    def close(self) -> None:
        if self.is_current:
            self.app.pop_screen()


class HelpScreen(OverlayScreen):
    def __init__(self, below: ConsoleScreen, about: ScreenName) -> None:
        super().__init__(below)
        self._about: ScreenName = about

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        keymap = self.console.look.keymap
        scrub = self.console.look.scrub
        replay = scrub is not None and not scrub.live
        why_not: Shown = "this is a recording" if replay else "this is the past" if scrub is not None else ""
        if picture.read_only and not replay:
            why_not = safe(read_only_words(picture))
        url = picture.link.url
        return help_rows(self._about, size.width, size.height, url, keymap, why_not, replay=replay)

    def pressed(self, event: events.Key) -> None:
        self.close()


class FilterScreen(OverlayScreen):
    """The filter as it is typed; the lists follow every key."""

    def takes_paste(self) -> bool:
        return True

    def on_mount(self) -> None:
        self.console.look.filtering = True
        super().on_mount()

    def on_unmount(self) -> None:
        self.console.look.filtering = False

    def pressed(self, event: events.Key) -> None:
        look = self.console.look
        if event.key in ("enter", "escape"):
            if event.key == "escape":
                look.filter = ""
            look.filtering = False
            self.close()
        elif event.key == "backspace":
            look.filter = look.filter[:-1]
        elif event.character is not None and event.character.isprintable():
            look.filter = (look.filter + event.character)[:MAX_FILTER]


class QuestionScreen(OverlayScreen):
    """Leaving an engine that serves other people's requests: ``y`` leaves, everything else stays."""

    def __init__(self, below: ConsoleScreen, rows: list[Row]) -> None:
        super().__init__(below)
        self._rows = rows

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return self._rows

    def pressed(self, event: events.Key) -> None:
        if event.key == "y":
            self.console.departure.leave_now(0)
        else:
            self.close()
