"""Two moments or two replicas beside each other, in a box."""

from textual import events

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.overlay import OverlayScreen
from infer_console.view.diff import Side, diff_box
from infer_console.view.look import Size
from infer_console.view.row import Row


class DiffScreen(OverlayScreen):
    """Any key closes it."""

    def __init__(self, below: ConsoleScreen, a: Side, b: Side) -> None:
        super().__init__(below)
        self._a, self._b = a, b

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return diff_box(self._a, self._b, min(100, size.width - 2), size.height - 2)

    def pressed(self, event: events.Key) -> None:
        self.close()
