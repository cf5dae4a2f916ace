"""What is opened over the screen that is shown: the filter, the command line, boxes, help."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from infer_console.ui.screens.base import ConsoleScreen
from infer_console.ui.screens.boxes import KindsScreen, OperationScreen
from infer_console.ui.screens.command import CommandScreen, PaletteScreen
from infer_console.ui.screens.fleets import FleetsScreen
from infer_console.ui.screens.overlay import FilterScreen, HelpScreen, OverlayScreen
from infer_console.view.look import ScreenName

if TYPE_CHECKING:
    from infer_console.ui.app import ConsoleApp


class Overlays:
    """One at a time: over a box nothing more is opened."""

    def __init__(self, app: "ConsoleApp") -> None:
        self._app = app

    def filter(self) -> None:
        self._over(FilterScreen)

    def command(self, text: str = "") -> None:
        self._over(lambda below: CommandScreen(below, text))

    def palette(self) -> None:
        self._over(PaletteScreen)

    def kinds(self) -> None:
        self._over(KindsScreen)

    def operation(self, operation: str) -> None:
        self._over(lambda below: OperationScreen(below, operation))

    def fleets(self) -> None:
        self._over(FleetsScreen)

    def help(self, about: ScreenName) -> None:
        self._over(lambda below: HelpScreen(below, about))

    def _over(self, make: Callable[[ConsoleScreen], OverlayScreen]) -> None:
        below = self._app.screen
        if isinstance(below, ConsoleScreen):
            self._app.push_screen(make(below))
