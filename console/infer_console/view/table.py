"""Tables whose columns come and go with the width of the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from infer_console.terminal.safe_text import fit_text, safe
from infer_console.view.row import Line, Role, Row, Shown, Tone

Item = TypeVar("Item")


class Cell(NamedTuple):
    text: Shown
    role: Role = "text"


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """``need`` 0 is always there; the higher it is, the sooner the column goes where room is short."""

    head: Shown
    width: int
    show: Callable[[Item], Cell]
    need: int = 0
    left: bool = False
    #: Cells it may take beyond ``width`` when there is room.
    grows: int = 0
    #: Draws the cell itself at the given width (a gauge); ``show`` is then not used.
    draw: Callable[[Item, int], Row] | None = None
    #: Draws the head likewise.
    draw_head: Callable[[int], Row] | None = None
    #: The sort order that this column is about.
    key: str = ""


class Fitted(NamedTuple, Generic[Item]):
    column: Column[Item]
    width: int


def fit_columns(columns: Sequence[Column[Item]], width: int) -> list[Fitted[Item]]:
    """The columns that fit ``width`` cells with a blank after each, and their widths."""
    kept = list(columns)
    while len(kept) > 1 and sum(column.width + 1 for column in kept) - 1 > width:
        worst = max(kept, key=lambda column: column.need)
        if worst.need == 0:
            break
        kept.remove(worst)
    spare = max(0, width - sum(column.width + 1 for column in kept) + 1)
    fitted: list[Fitted[Item]] = []
    growing = sum(1 for column in kept if column.grows)
    for column in kept:
        extra = 0
        if column.grows and growing:
            extra = min(column.grows, spare // growing)
            growing -= 1
            spare -= extra
        fitted.append(Fitted(column, column.width + extra))
    return fitted


def head_row(fitted: Sequence[Fitted[Item]], width: int, lead: int, sorted_by: str = "") -> Row:
    """The heads, ``lead`` cells in. ``▾`` stands beside the head of the column that the table is sorted
    by."""
    line = Line(width).to(lead)
    for column, cells in fitted:
        start = line.used
        role: Role = "accent" if column.key and column.key == sorted_by else "label"
        if column.draw_head is not None:
            line.put_spans(column.draw_head(cells))
        elif column.left:
            line.put(column.head, role)
        else:
            line.to(start + max(0, cells - len(column.head))).put(column.head, role)
        if role == "accent" and line.used <= start + cells:
            line.put("▾", "accent")
        line.to(start + cells + 1)
    return line.row()


def item_row(fitted: Sequence[Fitted[Item]], item: Item, width: int, lead: Line, tone: Tone = "plain") -> Row:
    """One item; ``lead`` is the line with whatever stands before the first column."""
    line = lead
    for column, cells in fitted:
        start = line.used
        if column.draw is not None:
            for span in column.draw(item, cells):
                line.put_spans((span._replace(tone=tone),))
        else:
            text, role = column.show(item)
            if len(text) > cells:
                text = fit_text(safe(text), cells)
            if not column.left:
                line.to(start + cells - len(text))
            line.put(text, role)
        line.to(start + cells + 1)
    return line.row()
