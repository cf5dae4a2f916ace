"""Dividing a screen's height among its sections, and the rules between them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import Line, Row, Shown


class Want(NamedTuple):
    """``least`` rows or none at all; up to ``most``; a lower ``rank`` is served first."""

    name: str
    least: int
    most: int
    rank: int


def allot(height: int, wants: Sequence[Want]) -> dict[str, int]:
    """Rows for every section. First each gets its least in order of rank, then each is filled up in the same
    order; a section that cannot have its least gets none."""
    given = {want.name: 0 for want in wants}
    left = max(0, height)
    ranked = sorted(wants, key=lambda want: want.rank)
    for want in ranked:
        if 0 < want.least <= left:
            given[want.name] = want.least
            left -= want.least
    for want in ranked:
        if given[want.name] or want.least == 0:  # what may be absent may also be filled
            extra = min(left, max(0, want.most - given[want.name]))
            given[want.name] += extra
            left -= extra
    return given


def rule(
    width: int, title: Shown, count: SafeText | None = None, note: Shown = "", focused: bool = False
) -> Row:
    """``── TITLE 9 ───── note ──``; the focused pane's title is marked by ``▸`` too, not by colour alone."""
    line = Line(width).put("──", "rule").put("▸" if focused else " ", "accent")
    line.put(title, "accent" if focused else "title")
    if count is not None:
        line.put(" ").put(count, "strong")
    line.put(" ")
    if note and len(note) + 4 <= line.left:
        line.to(width - len(note) - 4, "─", "rule").put(" ").put(note, "dim").put(" ")
    return line.to(width, "─", "rule").row()


def window(total: int, height: int, index: int) -> range:
    """Which items of a list of ``total`` to show in ``height`` rows so that ``index`` is among them, in the
    middle where the list is long. The same list, height and index give the same window."""
    if height <= 0:
        return range(0)
    if total <= height:
        return range(total)
    first = max(0, min(index - height // 2, total - height))
    return range(first, first + height)


def fill(rows: list[Row], height: int, width: int) -> list[Row]:
    """Exactly ``height`` rows."""
    return rows[:height] + [Line(width).row()] * max(0, height - len(rows))


def scrolled(rows: list[Row], past: int, height: int, width: int) -> tuple[list[Row], int]:
    """Exactly ``height`` rows from ``past`` on, the last of them saying how many more there are; and how far
    it is scrolled, which is never beyond the end."""
    if height <= 0:
        return [], past
    past = max(0, min(past, len(rows) - height))
    shown = rows[past : past + height]
    below = len(rows) - past - height
    if below > 0 and height > 1:
        line = Line(width).put(" ▾ ", "accent").put(safe(f"{below + 1} more rows"), "dim")
        shown[-1] = line.put("  pgdn", "key").row()
    return fill(shown, height, width), past


class Section(NamedTuple):
    """``draw`` is given as many rows as were allotted, and may return fewer."""

    want: Want
    draw: Callable[[int], list[Row]]


def drawn(sections: list[Section], height: int, width: int, filled: bool = True) -> list[Row]:
    """The sections in their order, each with as many rows as it was allotted; ``filled``: to the height."""
    given = allot(height, [section.want for section in sections])
    rows: list[Row] = []
    for section in sections:
        cells = given[section.want.name]
        if cells > 0:
            rows += section.draw(cells)[:cells]
    return fill(rows, height, width) if filled else rows
