"""What every screen has: banner above, keys below, and what stands there before the first data."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import actions_off, bar_tone
from infer_console.view.key_bar import key_bar
from infer_console.view.layout import fill
from infer_console.view.look import Look, ScreenName
from infer_console.view.row import Line, Role, Row
from infer_console.view.watched import is_watched

#: Keys that do nothing where no tokens are told.
NEED_TOKENS = frozenset({"reveal"})
#: Keys of the Planner that are of its fields, and of the KV grid in their place.
OF_FIELDS, OF_GRID = frozenset({"less", "as_watched"}), frozenset({"decode(1)"})
#: From this height on sections have titles.
ROOMY = 30


def bottom_row(
    picture: Picture, look: Look, screen: ScreenName, width: int, now: float, notice: SafeText | None
) -> Row:
    """The filter being typed, a notice, or the keys."""
    if look.filtering:
        line = (
            Line(width, "bar").put(" filter: ", "label").put(safe(look.filter), "strong").put("▏", "accent")
        )
        return line.right("enter: keep  esc: clear ", "dim").row()
    if notice is not None:
        return Line(width, "bar").put(" ").put(notice, "warn").row()
    why_not = actions_off(picture, look, now)
    without = NEED_TOKENS if is_watched(picture) else frozenset[str]()
    without |= OF_FIELDS if look.kv_grid.open else OF_GRID
    return key_bar(screen, width, why_not, bar_tone(picture), look.keymap, without)


def start_rows(picture: Picture, width: int, height: int) -> list[Row]:
    """What is shown before the first data: what is being waited for."""
    link = picture.link
    words: dict[str, tuple[str, Role]] = {
        "starting": ("starting the engine" if picture.embedded else "opening the recording", "accent"),
        "connecting": ("connecting", "accent"),
        "lost": ("no connection", "crit"),
        "stale": ("the server is silent", "warn"),
        "live": ("waiting for the first picture", "accent"),
    }
    word, role = words[link.state]
    rows = [Line(width).row(), Line(width).put(" ").put(safe(word), role).row()]
    if link.url:
        rows.append(Line(width).put("   ").put(safe(link.url), "dim").row())
    for piece in link.message.splitlines()[-max(1, height - 4) :]:
        rows.append(Line(width).put("   ").put(safe(piece)).row())
    return fill(rows, height, width)


def whole(top: list[Row], body: list[Row], bottom: list[Row], width: int, height: int) -> list[Row]:
    """Exactly ``height`` rows; on a screen of a few lines the top ones stay."""
    return fill(top + fill(body, max(0, height - len(top) - len(bottom)), width) + bottom, height, width)
