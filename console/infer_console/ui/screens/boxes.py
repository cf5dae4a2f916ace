"""Boxes of the Events screen: which kinds are shown, and all of one operation."""

from textual import events

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.overlay import OverlayScreen
from infer_console.view.kinds import KINDS, kind_rows
from infer_console.view.look import Size
from infer_console.view.operation_list import operation_box
from infer_console.view.row import Row


class KindsScreen(OverlayScreen):
    """Toggles; the lists below follow every key."""

    def __init__(self, below: ConsoleScreen) -> None:
        super().__init__(below)
        self._at = 0

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return kind_rows(picture, self.console.look, self._at, size.width, size.height)

    def pressed(self, event: events.Key) -> None:
        look = self.console.look
        match event.key:
            case "down" | "j" | "tab":
                self._at = (self._at + 1) % len(KINDS)
            case "up" | "k" | "shift+tab":
                self._at = (self._at - 1) % len(KINDS)
            case "space" | "x":
                look.hidden_kinds ^= {KINDS[self._at]}
            case "a":
                look.hidden_kinds.clear()
            case "n":
                look.hidden_kinds = set(KINDS)
            case "escape" | "enter" | "f" | "q":
                self.close()
            case _:
                pass


class OperationScreen(OverlayScreen):
    """Live: it shows how far it is for as long as it is open."""

    def __init__(self, below: ConsoleScreen, operation: str) -> None:
        super().__init__(below)
        self._operation = operation

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return operation_box(picture, self._operation, size.width, size.height, now)

    def pressed(self, event: events.Key) -> None:
        self.close()
