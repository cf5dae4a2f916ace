"""The Requests screen: every request of the fleet."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.frame import bottom_row, start_rows, whole
from infer_console.view.look import Look, Size
from infer_console.view.row import Row


def requests_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now, safe("requests"))]
    bottom = [bottom_row(picture, look, "requests", width, now, notice)]
    return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
