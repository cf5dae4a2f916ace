"""One replica: its batch, its queue, its blocks."""

from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, Interest, actions_of
from infer_console.view.look import LENSES, ROSTER_SORTS, Size
from infer_console.view.order import pane_ids
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import Row


class ReplicaScreen(ConsoleScreen):
    name_in_look = "replica"
    actions = actions_of("replica")

    def interest(self, picture: Picture) -> Interest:
        look = self.console.look
        if look.replica is None:  # opened before any replica was known
            look.replica = next(iter(pane_ids(picture, look, "fleet", "replicas")), None)
        return Interest((look.replica,) if look.replica else (), ("roster", "blocks"))

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return replica_screen(picture, self.console.look, size, now, self.console.notice)

    def target_request(self) -> str | None:
        if self.console.look.pane("replica") == "events":
            return None
        cursor = self.focused_cursor()
        return cursor.id if cursor is not None else None

    def _move(self, by: int) -> None:
        super()._move(by)
        self._link()

    def action_next_pane(self) -> None:
        self._link()
        super().action_next_pane()

    def action_previous_pane(self) -> None:
        self._link()
        super().action_previous_pane()

    def _link(self) -> None:
        """Roster and map stand on the same request: the other one follows the one with the focus."""
        look = self.console.look
        pane = look.pane("replica")
        if pane not in ("roster", "blocks") or (cursor := self.focused_cursor()) is None:
            return
        other = "blocks" if pane == "roster" else "roster"
        if cursor.id is not None:
            ids = pane_ids(self.console.shown_picture, look, "replica", other)
            if look.cursor("replica", other).select(ids, cursor.id):
                self.paint()

    def action_into(self) -> None:
        """The tokens of the request under the cursor."""
        request = self.target_request()
        if request is not None:
            self.console.look.zoomed = request
            self.console.go("streams")

    def action_sort(self) -> None:
        look = self.console.look
        look.roster_sort = ROSTER_SORTS[(ROSTER_SORTS.index(look.roster_sort) + 1) % len(ROSTER_SORTS)]
        self.paint()

    def action_lens(self) -> None:
        look = self.console.look
        look.lens = LENSES[(LENSES.index(look.lens) + 1) % len(LENSES)]
        self.paint()
