"""Tokens as they are generated."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, Interest, actions_of
from infer_console.view.look import Pane, Size
from infer_console.view.row import Row
from infer_console.view.streams import StreamSlots, capacity
from infer_console.view.streams_screen import streams_screen

#: Panels shown when nobody picked any.
USUAL_PANELS = 6
#: Replicas whose rosters are looked through.
MAX_REPLICAS = 8


class StreamsScreen(ConsoleScreen):
    name_in_look = "streams"
    actions = actions_of("streams")

    def __init__(self) -> None:
        super().__init__()
        self._slots = StreamSlots()
        self._shown: list[str] = []

    def interest(self, picture: Picture) -> Interest:
        return Interest(tuple(picture.replicas)[:MAX_REPLICAS], ("roster",))

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        look = self.console.look
        picked = [look.zoomed] if look.zoomed else look.marked
        room = capacity(size.width, size.height - 3)
        if not picked:
            room = min(room, USUAL_PANELS)
        shown = self._slots.update(running_requests(picture), picked, room)
        if shown != self._shown:
            self._shown = shown
            self.console.watch_streams(shown)
        look.cursor("streams", "panels").follow(shown)
        return streams_screen(picture, look, shown, size, now, self.console.notice)

    def focused_ids(self) -> tuple[Pane | None, list[str]]:
        return "panels", self._shown

    def on_screen_resume(self) -> None:
        self._shown = []
        super().on_screen_resume()

    def on_screen_suspend(self) -> None:
        self.console.watch_streams([])

    def target_replica(self) -> str | None:
        return None

    def target_request(self) -> str | None:
        return self.console.look.cursor("streams", "panels").id

    def action_back(self) -> None:
        zoomed, self.console.look.zoomed = self.console.look.zoomed, None
        self.console.go("replica" if zoomed else "fleet")


def running_requests(picture: Picture) -> list[str]:
    """Running requests of all replicas whose roster is known, in batch order."""
    return [
        request
        for replica in picture.replicas.values()
        for request in replica.order
        if request in replica.rows and replica.rows[request].state == "running"
    ]
