"""The Streams screen: tokens as they are generated."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.frame import ROOMY, bottom_row, whole
from infer_console.view.layout import rule
from infer_console.view.look import Look, Size
from infer_console.view.row import Line, Row
from infer_console.view.streams import stream_rows
from infer_console.view.token_flow import SIGNS
from infer_console.view.watched import fleet_needs, is_watched

#: From this height on what the signs mean has a row.
WITH_SIGNS = 16
#: From this width on that row says whether text is shown, too.
SAID_BELOW_FROM = 115


def may_read(picture: Picture) -> bool:
    """Whether the server lets this console read generated text; one that does not say who we are is asked."""
    return picture.role != "viewer"


def streams_screen(
    picture: Picture, look: Look, shown: list[str], size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells; ``shown`` are the requests with a panel."""
    width, height = size
    revealed = look.revealed and may_read(picture)
    rows = [banner(picture, look, width, now, safe("streams"))]
    watched = is_watched(picture)
    picked = f"{len(look.marked)} picked" if look.marked else "newest running; space picks"
    if height >= ROOMY:
        below = bool(shown) and width >= SAID_BELOW_FROM
        note = safe(picked if below else f"{picked}  {_content(picture, revealed)}")
        number = "not told" if watched else str(len(shown))
        rows.append(rule(width, "STREAMS", safe(number), "" if watched else note))
    if height >= WITH_SIGNS and shown and not watched:
        rows.append(_signs(picture, revealed, width))
    if picture.streams_message and shown and not watched:
        rows.append(Line(width).put(safe(f" no tokens: {picture.streams_message}", 200), "crit").row())
    body = height - len(rows) - 1
    selected = look.cursor("streams", "panels").id
    if watched:
        rows += fleet_needs("a server that is only watched tells no tokens", picture, width)
        return whole([], rows, [bottom_row(picture, look, "streams", width, now, notice)], width, height)
    rows += stream_rows(picture, shown, selected, width, body, revealed)
    return whole([], rows, [bottom_row(picture, look, "streams", width, now, notice)], width, height)


def _content(picture: Picture, revealed: bool) -> str:
    if revealed:
        return "text shown, which is in the audit; c hides it"
    if not may_read(picture):
        return "text hidden: role viewer may not read it"
    return "text hidden; c shows it"


def _signs(picture: Picture, revealed: bool, width: int) -> Row:
    line = Line(width).put(" a token each: ", "dim")
    for sign, role, meaning in SIGNS:
        line.put(sign, role).put(" ").put(meaning, "dim").put("  ")
    return line.right(safe(f"{_content(picture, revealed)} "), "dim").row()
