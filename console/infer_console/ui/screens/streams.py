"""Tokens as they are generated."""

from infer_console.actions.cancel import find_request
from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, Interest, actions_of
from infer_console.view.look import Pane, Size
from infer_console.view.row import Row
from infer_console.view.streams import StreamSlots, capacity
from infer_console.view.streams_screen import may_read, streams_screen
from infer_console.view.watched import is_watched

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
        self._content = False

    def interest(self, picture: Picture) -> Interest:
        """What was picked may be anywhere: then the list of all says where."""
        look = self.console.look
        picked = [look.zoomed] if look.zoomed else look.marked
        rows = [find_request(picture, request) for request in picked]
        there = [row.replica for row in rows if row is not None and row.replica is not None]
        known = [replica for replica in there if replica in picture.replicas]
        replicas = dict.fromkeys([*known, *picture.replicas])
        return Interest(tuple(replicas)[:MAX_REPLICAS], ("roster",), listing=bool(picked))

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        look = self.console.look
        picked = [look.zoomed] if look.zoomed else look.marked
        room = capacity(size.width, size.height - 3)
        if not picked:
            room = min(room, USUAL_PANELS)
        shown = self._slots.update(running_requests(picture), picked, room)
        content = look.revealed and may_read(picture)
        if shown != self._shown or content != self._content:
            self._shown, self._content = shown, content
            self.console.watch_streams(shown, content)
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

    def action_reveal(self) -> None:
        """Show or hide the text, where the server lets this console read it."""
        look = self.console.look
        if is_watched(self.console.shown_picture):
            self.console.say("a server that is only watched tells no tokens")
            return
        if not may_read(self.console.shown_picture):
            self.console.say("the text stays hidden: role viewer may not read it")
            return
        look.revealed = not look.revealed
        said = (
            "the text is shown; the server's audit has who read it" if look.revealed else "the text is hidden"
        )
        self.console.say(said)

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
