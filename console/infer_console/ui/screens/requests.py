"""Every request of the fleet."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, actions_of
from infer_console.view.look import Size
from infer_console.view.requests_screen import requests_screen
from infer_console.view.row import Row


class RequestsScreen(ConsoleScreen):
    name_in_look = "requests"
    actions = actions_of("requests")

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return requests_screen(picture, self.console.look, size, now, self.console.notice)

    def target_replica(self) -> str | None:
        return None

    def action_back(self) -> None:
        if self.console.look.filter:
            self.console.look.filter = ""
            self.paint()
        else:
            self.console.go("fleet")
