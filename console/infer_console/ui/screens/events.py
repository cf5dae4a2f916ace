"""What happened and what is under way."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, actions_of
from infer_console.view.events_screen import events_screen
from infer_console.view.look import Size
from infer_console.view.order import event_id, events
from infer_console.view.row import Row


class EventsScreen(ConsoleScreen):
    name_in_look = "events"
    actions = actions_of("events")

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return events_screen(picture, self.console.look, size, now, self.console.notice)

    def target_replica(self) -> str | None:
        return None

    def action_into(self) -> None:
        """An operation's details; of an event its request's timeline, else its operation, else its
        replica."""
        cursor = self.focused_cursor()
        look = self.console.look
        if cursor is None or cursor.id is None:
            return
        if look.pane("events") == "operations":
            self.console.overlays.operation(cursor.id)
            return
        shown = events(self.console.shown_picture, look)
        event = next((each for each in shown if event_id(each) == cursor.id), None)
        if event is None:
            return
        if event.request is not None:
            self.console.open_timeline(event.request)
        elif event.operation is not None:
            self.console.overlays.operation(event.operation)
        elif event.replica is not None:
            look.replica = event.replica
            self.console.go("replica")
