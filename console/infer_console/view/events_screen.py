"""The Events and operations screen: what happened and what is under way."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.events import event_rows, lost_row
from infer_console.view.frame import bottom_row, start_rows, whole
from infer_console.view.layout import fill
from infer_console.view.look import Look, Size
from infer_console.view.operation_list import operation_list
from infer_console.view.order import operations
from infer_console.view.row import Row
from infer_console.view.vital import fleet_vitals, vital_row


def events_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now, safe("events"))]
    bottom = [bottom_row(picture, look, "events", width, now, notice)]
    if picture.totals is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    top.append(vital_row(fleet_vitals(picture), width))
    body_height = max(0, height - 3)
    rest = lost_row(picture, width) if height >= 10 else None
    listed = _operations_height(picture, look, body_height)
    body = fill(operation_list(picture, look, width, listed, now), listed, width)
    room = max(0, body_height - listed - (1 if rest is not None else 0))
    body += fill(event_rows(picture, look, "events", width, room), room, width)
    if rest is not None:
        body.append(rest)
    return whole(top, body, bottom, width, height)


def _operations_height(picture: Picture, look: Look, height: int) -> int:
    """A row each and a title, within a third of the screen, or two thirds where the cursor is in there."""
    wanted = 1 + max(1, len(operations(picture, look)))
    most = height * 2 // 3 if look.pane("events") == "operations" else height // 3
    return max(2, min(wanted, most)) if height >= 6 else 0
