"""All replicas."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, Interest, actions_of
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import FLEET_SORTS, Size
from infer_console.view.order import event_id, events
from infer_console.view.row import Row
from infer_console.view.watched import is_watched


class FleetScreen(ConsoleScreen):
    name_in_look = "fleet"
    actions = actions_of("fleet")

    def interest(self, picture: Picture) -> Interest:
        return Interest((), (), demand=not is_watched(picture))

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return fleet_screen(picture, self.console.look, size, now, self.console.notice)

    def target_replica(self) -> str | None:
        return self.console.look.cursor("fleet", "replicas").id

    def action_into(self) -> None:
        """Open the replica under the cursor, or that of the event under it."""
        cursor = self.focused_cursor()
        look = self.console.look
        if cursor is None or cursor.id is None:
            return
        replica: str | None = cursor.id
        if look.pane("fleet") == "events":
            shown = events(self.console.shown_picture, look)
            replica = next((event.replica for event in shown if event_id(event) == cursor.id), None)
        if replica is not None:
            look.replica = replica
            self.console.go("replica")

    def action_back(self) -> None:
        self.console.look.filter = ""
        self.paint()

    def action_sort(self) -> None:
        look = self.console.look
        look.fleet_sort = FLEET_SORTS[(FLEET_SORTS.index(look.fleet_sort) + 1) % len(FLEET_SORTS)]
        self.console.say(f"sorted by {look.fleet_sort}")
