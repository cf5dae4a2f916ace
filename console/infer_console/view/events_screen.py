"""The Events and operations screen: what happened and what is under way."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.events import event_rows
from infer_console.view.frame import bottom_row, start_rows, whole
from infer_console.view.layout import fill
from infer_console.view.look import Look, Size
from infer_console.view.operations import operation_section
from infer_console.view.row import Row


def events_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now, safe("events"))]
    bottom = [bottom_row(picture, look, "events", width, now, notice)]
    if picture.totals is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    body = operation_section(picture, width, max(1, height // 3), now)
    body += event_rows(picture, look, "events", width, max(0, height - 2 - len(body)))
    return whole(top, fill(body, max(0, height - 2), width), bottom, width, height)
