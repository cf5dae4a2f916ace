"""What happened and what is under way."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, actions_of
from infer_console.view.events_screen import events_screen
from infer_console.view.look import Size
from infer_console.view.row import Row


class EventsScreen(ConsoleScreen):
    name_in_look = "events"
    actions = actions_of("events")

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return events_screen(picture, self.console.look, size, now, self.console.notice)

    def target_replica(self) -> str | None:
        return None

    def action_back(self) -> None:
        if self.console.look.filter:
            self.console.look.filter = ""
            self.paint()
        else:
            self.console.go("fleet")
