"""The Streams screen: tokens as they are generated."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.frame import ROOMY, bottom_row, whole
from infer_console.view.layout import rule
from infer_console.view.look import Look, Size
from infer_console.view.row import Row
from infer_console.view.streams import stream_rows


def streams_screen(
    picture: Picture, look: Look, shown: list[str], size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells; ``shown`` are the requests with a panel."""
    width, height = size
    rows = [banner(picture, look, width, now, safe("streams"))]
    picked = safe(f"{len(look.marked)} picked") if look.marked else safe("newest running; space on 2 picks")
    if height >= ROOMY:
        rows.append(rule(width, "STREAMS", safe(str(len(shown))), picked))
    body = height - len(rows) - 1
    rows += stream_rows(picture, shown, look.cursor("streams", "panels").id, width, body)
    return whole([], rows, [bottom_row(picture, look, "streams", width, now, notice)], width, height)
