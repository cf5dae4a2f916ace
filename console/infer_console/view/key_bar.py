"""The last row of every screen: the keys that fit, those that look, those that act, and the way out."""

from infer_console.view.bindings import keys_of
from infer_console.view.keys import Key
from infer_console.view.look import Keymap, ScreenName
from infer_console.view.row import Line, Row, Shown, Tone


def key_bar(
    screen: ScreenName,
    width: int,
    why_not: Shown = "",
    tone: Tone = "bar",
    keymap: Keymap | None = None,
    without: frozenset[str] = frozenset(),
) -> Row:
    """The keys that fit: first those that look, then those that act, or why they do not. Those of the actions
    ``without`` are not named."""
    usual = [key for key in keys_of(screen, keymap) if key.bar and key.action not in without]
    kept = [key for key in usual if not (why_not and key.kind == "act")]
    while kept and _cells(kept) + len(why_not) > width:
        kept.remove(min(reversed(kept), key=lambda key: key.bar))
    last = [key for key in kept if key.action in ("help", "quit")]
    line = Line(width, tone).put(" ")
    for key in kept:
        if key.kind == "look" and key not in last:
            line.put(key.shown, "key").put(" ").put(key.label, "dim").put("  ")
    acting = [key for key in kept if key.kind == "act"]
    if why_not or acting:
        line.put("│ ", "rule").put(why_not, "warn").put("  " if why_not else "")
    for key in acting:
        line.put(key.shown, "act").put(" ").put(key.label, "dim").put("  ")
    line.put("│ ", "rule")
    for key in last:
        line.put(key.shown, "key").put(" ").put(key.label, "dim").put("  ")
    return line.row()


def _cells(keys: list[Key]) -> int:
    return 7 + sum(len(key.shown) + len(key.label) + 3 for key in keys)
