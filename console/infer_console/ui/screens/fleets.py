"""The box of the fleets that this console is connected to."""

from textual import events

from infer_console.state.picture import Picture
from infer_console.ui.screens.overlay import OverlayScreen
from infer_console.view.fleet_list import fleet_rows
from infer_console.view.look import Size
from infer_console.view.row import Row


class FleetsScreen(OverlayScreen):
    """A digit shows that fleet."""

    def box(self, picture: Picture, size: Size, now: float) -> list[Row]:
        fleets = self.console.fleets
        pictures = dict(zip(fleets.names, fleets.pictures, strict=True))
        return fleet_rows(pictures, fleets.name, size.width, size.height, now)

    def pressed(self, event: events.Key) -> None:
        names = self.console.fleets.names
        if event.key.isdecimal() and not 1 <= int(event.key) <= len(names):
            return
        self.close()
        if event.key.isdecimal():
            self.console.fleets.show(names[int(event.key) - 1])
        elif event.key == "ctrl+n":
            self.console.fleets.next()
