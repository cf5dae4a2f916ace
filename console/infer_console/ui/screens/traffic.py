"""What the console injects and what that does."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, actions_of
from infer_console.view.look import Size
from infer_console.view.row import Row
from infer_console.view.traffic_screen import traffic_screen


class TrafficScreen(ConsoleScreen):
    name_in_look = "traffic"
    actions = actions_of("traffic")

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return traffic_screen(picture, self.console.look, size, now, self.console.notice)

    def target_replica(self) -> str | None:
        return None
