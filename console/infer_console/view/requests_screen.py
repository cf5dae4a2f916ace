"""The Requests screen: every request of the fleet, or what happened to one of them."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.frame import bottom_row, start_rows, whole
from infer_console.view.layout import fill
from infer_console.view.look import Look, Size
from infer_console.view.requests import request_table
from infer_console.view.row import Row
from infer_console.view.timeline import timeline_section
from infer_console.view.vital import fleet_vitals, vital_row
from infer_console.view.waiting import waiting_line

#: From this height on who waits and why has a line above the list.
WITH_REASONS = 14


def requests_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now, safe("requests"))]
    bottom = [bottom_row(picture, look, "requests", width, now, notice)]
    if picture.totals is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    top.append(vital_row(fleet_vitals(picture), width))
    if look.timeline is not None:
        body = timeline_section(picture, look, look.timeline, width, height - 3)
        return whole(top, fill(body, max(0, height - 3), width), bottom, width, height)
    if height >= WITH_REASONS:
        top.append(waiting_line(picture, width))
    body = request_table(picture, look, width, height - len(top) - 1)
    return whole(top, body, bottom, width, height)
