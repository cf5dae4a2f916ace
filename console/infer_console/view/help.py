"""The help page: every key of the screen, and what the signs mean."""

from typing import LiteralString

from infer_console.terminal.safe_text import safe
from infer_console.view.bindings import keys_of
from infer_console.view.box import CLOSES, box, titled
from infer_console.view.keys import ALL, Key
from infer_console.view.look import Keymap, ScreenName
from infer_console.view.row import Line, Role, Row, Shown, beside

#: Signs with their meaning.
SIGNS: tuple[tuple[str, Role, str], ...] = (
    ("╎", "mark", "batch requests are admitted up to here"),
    ("┃", "mark", "interactive requests are admitted up to here"),
    ("█▒·", "used", "KV pool: used, cached (reclaimable), free"),
    ("▲△", "crit", "critical alarm, warning"),
    ("▸▹", "accent", "cursor; in the pane without the focus"),
    ("●", "accent", "picked for the Streams screen"),
    ("int bat", "text", "tier: interactive, batch"),
    ("°", "dim", "test traffic"),
    ("skipped", "dim", "frames left out: this terminal was behind"),
    ("–", "dim", "not known; never drawn as 0"),
)

#: What keys do in a recording, where it is something else.
_IN_REPLAY: dict[str, LiteralString] = {
    "pause": "play or stop; how fast: infer-console replay FILE --speed 4",
    "end": "the end of the recording",
}


def help_rows(
    screen: ScreenName,
    width: int,
    height: int,
    url: str = "",
    keymap: Keymap | None = None,
    why_not: Shown = "",
    *,
    replay: bool = False,
) -> list[Row]:
    """A framed box. Where there is no room for a line per key, the keys that explain themselves best share
    lines by their short names: every key is named while there is any room for it, and what is left out is
    counted. ``url`` is that of the server's control socket, ``why_not`` why keys that act are off;
    in a ``replay`` some keys do something else. A recording's name is no URL."""
    if "://" not in url:
        url = ""
    outer = max(24, min(100, width - 2))
    inner = outer - 4
    room = max(1, height - 4)
    keys = _merged(keys_of(screen, keymap))
    if replay:
        keys = [key._replace(help=_IN_REPLAY.get(key.action, key.help)) for key in keys]
    signs = [Line(inner, "dialog").row(), *_sign_rows(inner)]
    rows = [_first_row(inner, why_not)]
    rows += _key_rows(keys, inner, room - (3 if url else 1), off=bool(why_not))
    if url:
        rows.append(Line(inner, "dialog").put("the same in another terminal: ", "dim").row())
        rows.append(Line(inner, "dialog").put(safe(f"  infer-console --connect {url}", inner), "text").row())
    if len(rows) + len(signs) <= room:
        rows += signs
    if len(rows) > room:
        more = safe(f"… {len(rows) - room + 1} more in a taller terminal", inner)
        rows[room - 1 :] = [Line(inner, "dialog").put(more, "warn").row()]
    return box(titled(outer, "Help"), rows, CLOSES)


def _first_row(inner: int, why_not: Shown) -> Row:
    if not why_not:
        return Line(inner, "dialog").put("small letters look, capitals act", "title").row()
    off = safe(f"capitals are off: {why_not}")
    line = Line(inner, "dialog").put("small letters look; " if len(off) + 20 <= inner else "", "title")
    return line.put(off, "warn").row()


def _merged(keys: list[Key]) -> list[Key]:
    """One line for each action."""
    seen: dict[str, Key] = {}
    for key in (each for each in keys if each.help):
        seen.setdefault(key.action, key)
    return list(seen.values())


def _key_row(key: Key, inner: int, off: bool = False) -> Row:
    if off:
        line = Line(inner, "dialog").put(key.shown, "dim").to(11)
        return line.put("off: ", "warn").put(key.help, "dim").row()
    line = Line(inner, "dialog").put(key.shown, "act" if key.kind == "act" else "key").to(11)
    return line.put(key.help, "text").row()


def _key_rows(keys: list[Key], inner: int, room: int, *, off: bool = False) -> list[Row]:
    """Keys that act, which may be off, then keys that look, in words as far as ``room`` lines reach."""
    acts = [key for key in keys if key.kind == "act"]
    looks = [key for key in keys if key.kind == "look"]
    acting = [_key_row(key, inner, off) for key in acts]
    for shortened in range(len(looks) + 1):
        short = sorted(looks, key=_needs_words)[:shortened]
        looking = [_key_row(key, inner) for key in looks if key not in short]
        looking += _short_rows([key for key in looks if key in short], inner)
        if len(acting) + len(looking) <= room:
            return acting + looking
    return _short_rows(acts, inner, off) + _short_rows(looks, inner)


def _needs_words(key: Key) -> int:
    """Screens say what they are by their names; then what the key bar has is told in words."""
    return -1 if key.action in ALL else key.bar


def _short_rows(keys: list[Key], inner: int, off: bool = False) -> list[Row]:
    """Three keys to a line, fewer where their names would not fit."""
    columns = max(1, min(3, inner // 22))
    each = inner // columns
    rows: list[Row] = []
    for first in range(0, len(keys), columns):
        line = Line(inner, "dialog")
        for column, key in enumerate(keys[first : first + columns]):
            line.to(column * each).put(key.shown, "dim" if off else "key").to(column * each + 10)
            line.put(key.label, "dim" if off else "text")
        rows.append(line.row())
    return rows


def _sign_rows(inner: int) -> list[Row]:
    half = inner // 2
    made = [
        Line(half, "dialog").put(safe(sign), role).to(9).put(safe(text), "dim").row()
        for sign, role, text in SIGNS
    ]
    middle = (len(made) + 1) // 2
    return [
        tuple(span._replace(tone="dialog") for span in row)
        for row in beside(made[:middle], made[middle:], half, inner, "")
    ]
