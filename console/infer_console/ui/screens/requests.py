"""Every request of the fleet, or what happened to one of them."""

from infer_console.actions.cancel import find_request
from infer_console.state.picture import Picture
from infer_console.ui.screens.base import ConsoleScreen, Interest, actions_of
from infer_console.view.look import REQUEST_SORTS, SHOWN, Pane, Size
from infer_console.view.requests_screen import requests_screen
from infer_console.view.row import Row
from infer_console.view.timeline import entry_ids


class RequestsScreen(ConsoleScreen):
    name_in_look = "requests"
    actions = actions_of("requests")

    def interest(self, picture: Picture) -> Interest:
        return Interest((), (), listing=True, timeline=self.console.look.timeline)

    def draw(self, picture: Picture, size: Size, now: float) -> list[Row]:
        return requests_screen(picture, self.console.look, size, now, self.console.notice)

    def focused_ids(self) -> tuple[Pane | None, list[str]]:
        request = self.console.look.timeline
        if request is None:
            return super().focused_ids()
        return "timeline", entry_ids(self.console.shown_picture, request)

    def _move(self, by: int) -> None:
        """The timeline shows its end until it is moved."""
        if self.console.look.timeline is not None:
            _, ids = self.focused_ids()
            cursor = self.console.look.cursor("requests", "timeline")
            if ids and not cursor.moved:
                cursor.select(ids, ids[-1])
        super()._move(by)

    def target_request(self) -> str | None:
        opened = self.console.look.timeline
        if opened is not None:
            return opened
        cursor = self.focused_cursor()
        return cursor.id if cursor is not None else None

    def target_replica(self) -> str | None:
        row = find_request(self.console.shown_picture, self.target_request())
        return row.replica if row is not None else None

    def action_into(self) -> None:
        request = self.target_request()
        if request is not None and self.console.look.timeline is None:
            self.console.open_timeline(request)

    def action_requests(self) -> None:
        """The list, from a timeline too."""
        self.console.look.timeline = None
        self.paint()

    def action_streams(self) -> None:
        """From a timeline: the tokens of its request."""
        self.console.look.zoomed = self.console.look.timeline
        super().action_streams()

    def action_replica(self) -> None:
        """That of the request."""
        replica = self.target_replica()
        if replica is not None:
            self.console.look.replica = replica
        super().action_replica()

    def action_back(self) -> None:
        look = self.console.look
        if look.timeline is not None:
            look.timeline = None
            self.console.go(look.timeline_from)
        else:
            super().action_back()

    def action_sort(self) -> None:
        look = self.console.look
        look.request_sort = REQUEST_SORTS[(REQUEST_SORTS.index(look.request_sort) + 1) % len(REQUEST_SORTS)]
        self.paint()

    def action_which(self) -> None:
        look = self.console.look
        look.shown = SHOWN[(SHOWN.index(look.shown) + 1) % len(SHOWN)]
        self.paint()
