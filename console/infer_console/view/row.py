"""What a screen is made of: rows of spans, each a piece of safe text with the role that the theme colours.

Rows are plain values: equal rows are equal tuples, which is how an unchanged line costs nothing to repaint.
Text enters a row as :class:`SafeText` or as a constant of this program; the type checker tells the two from
``str``.
"""

from collections.abc import Iterable
from itertools import groupby, islice
from operator import itemgetter
from typing import Literal, LiteralString, NamedTuple, get_args

from infer_console.terminal.safe_text import SafeText, fit_text, safe
from infer_console.terminal.wrap import PaneRow

#: What a piece of text means. A theme gives every role a colour; meaning never rests on the colour alone.
Role = Literal[
    "text",
    "dim",
    "rule",
    "strong",
    "title",
    "label",
    "accent",
    "ok",
    "warn",
    "crit",
    "key",
    "act",
    "used",
    "cached",
    "free",
    "mark",
    "spark",
    "admit",
    "finish",
    "preempt",
    "evict",
    "move",
    "reject",
    "notice",
    "content",
    "escaped",
    "shared",
    "selected",
    "pending",
    "owner0",
    "owner1",
    "owner2",
    "owner3",
    "owner4",
    "owner5",
    "owner6",
    "owner7",
    "owner8",
    "owner9",
    "owner10",
    "owner11",
]
#: The ground a span stands on.
#: ``production`` is the bar of a server that is marked so.
Tone = Literal["plain", "bar", "production", "cursor", "dialog", "field"]

ROLES: tuple[Role, ...] = get_args(Role)
TONES: tuple[Tone, ...] = get_args(Tone)
OWNER_ROLES: tuple[Role, ...] = tuple(role for role in ROLES if role.startswith("owner"))

Shown = SafeText | LiteralString


class Span(NamedTuple):
    text: str
    role: Role = "text"
    tone: Tone = "plain"
    #: Width in cells; only free text in panes differs from its length.
    cells: int = 0


Row = tuple[Span, ...]


class Line:
    """Builds one row of exactly ``width`` cells; what does not fit is cut with ``…``."""

    def __init__(self, width: int, tone: Tone = "plain") -> None:
        self.width = width
        self.used = 0
        self.tone: Tone = tone
        self._spans: list[Span] = []

    @property
    def left(self) -> int:
        """Cells still empty."""
        return self.width - self.used

    def put(self, text: Shown, role: Role = "text", tone: Tone | None = None) -> "Line":
        """Append text whose every character is one cell."""
        if len(text) > self.left:
            text = fit_text(safe(text), self.left)
        if text:
            self._append(text, len(text), role, tone)
        return self

    def put_pane(self, row: PaneRow, role: Role = "content") -> "Line":
        """Append one wrapped row of free text; escaped forms get their own role."""
        for piece in row:
            if piece.cells <= self.left:
                self._append(piece.text, piece.cells, "escaped" if piece.escaped else role, None)
        return self

    def put_cells(self, cells: Iterable[tuple[SafeText, Role]]) -> "Line":
        """Append texts of one cell each, as many as fit; neighbours with one role become one span."""
        for role, alike in groupby(islice(cells, self.left), itemgetter(1)):
            text = "".join(cell for cell, _ in alike)
            self._append(text, len(text), role, None)
        return self

    def put_spans(self, row: Row) -> "Line":
        """Append the spans of a finished row, as far as they fit."""
        for span in row:
            if span.cells <= self.left:
                self._append(span.text, span.cells, span.role, span.tone)
            else:
                break
        return self

    def to(self, column: int, fill: LiteralString = " ", role: Role = "text") -> "Line":
        """Pad up to ``column``."""
        gap = min(column, self.width) - self.used
        if gap > 0:
            self._append(fill * gap, gap, role, None)
        return self

    def right(
        self, text: Shown, role: Role = "text", fill: LiteralString = " ", fill_role: Role = "text"
    ) -> "Line":
        """Put ``text`` at the right end, if there is room for it."""
        if 0 < len(text) <= self.left:
            self.to(self.width - len(text), fill, fill_role)
            self.put(text, role)
        return self

    def _append(self, text: str, cells: int, role: Role, tone: Tone | None) -> None:
        tone = tone or self.tone
        self.used += cells
        last = self._spans[-1] if self._spans else None
        if last is not None and last.role == role and last.tone == tone:
            self._spans[-1] = Span(last.text + text, role, tone, last.cells + cells)
        else:
            self._spans.append(Span(text, role, tone, cells))

    def row(self) -> Row:
        """The finished row, padded to the width."""
        self.to(self.width)
        return tuple(self._spans)


def plain(row: Row) -> str:
    """The row's text without its roles, trailing blanks cut."""
    return "".join(span.text for span in row).rstrip()


def blank(width: int) -> Row:
    return Line(width).row()


def with_tone(row: Row, tone: Tone) -> Row:
    """The row on another ground."""
    return tuple(span._replace(tone=tone) for span in row)


def beside(
    left: list[Row], right: list[Row], left_width: int, width: int, gap: LiteralString = "  "
) -> list[Row]:
    """Two blocks of rows next to each other; the shorter one is filled with blanks."""
    height = max(len(left), len(right))
    rows: list[Row] = []
    for index in range(height):
        line = Line(width)
        if index < len(left):
            line.put_spans(left[index])
        line.to(left_width).put(gap)
        if index < len(right):
            line.put_spans(right[index])
        rows.append(line.row())
    return rows


def overlay(base: list[Row], top: list[Row], width: int) -> list[Row]:
    """``top`` laid over the middle of ``base``; both are full rows, ``top`` narrower."""
    if not top:
        return base
    top_width = sum(span.cells for span in top[0])
    first = max(0, (len(base) - len(top)) // 2)
    column = max(0, (width - top_width) // 2)
    rows = list(base)
    for offset, row in enumerate(top):
        index = first + offset
        if index >= len(rows):
            break
        under = rows[index]
        line = Line(width)
        line.put_spans(crop(under, 0, column)).to(column)
        line.put_spans(row).to(column + top_width)
        line.put_spans(crop(under, column + top_width, width))
        rows[index] = line.row()
    return rows


def crop(row: Row, start: int, stop: int) -> Row:
    """The cells ``start`` to ``stop`` of a row. A wide character on an edge becomes blanks."""
    spans: list[Span] = []
    at = 0
    for span in row:
        first, last = max(start, at), min(stop, at + span.cells)
        if first < last:
            if span.cells == len(span.text):
                text = span.text[first - at : last - at]
            else:
                text = span.text if (first, last) == (at, at + span.cells) else " " * (last - first)
            spans.append(Span(text, span.role, span.tone, last - first))
        at += span.cells
    return tuple(spans)
