"""The frame of what is laid over a screen: a title above, and below what the keys do."""

from collections.abc import Iterable

from infer_console.view.row import Line, Row, Shown

CLOSES: Shown = " any key closes "


def box(title: Line, body: Iterable[Row], foot: Shown = "") -> list[Row]:
    """``title`` as :func:`titled` made it, as wide as the frame; rows of ``body`` have four cells less."""
    width = title.width
    top = title.to(width - 1, "─", "rule").put("┐", "rule").row()
    bottom = Line(width, "dialog").put("└", "rule").to(width - 2 - len(foot), "─", "rule")
    bottom.put(foot, "dim").to(width - 1, "─", "rule").put("┘", "rule")
    return [top, *(_framed(row, width) for row in body), bottom.row()]


def titled(width: int, words: Shown, about: Shown = "") -> Line:
    """The upper edge as far as it has words; more may be put."""
    return Line(width, "dialog").put("┌─ ", "rule").put(words, "strong").put(about, "accent").put(" ")


def _framed(row: Row, width: int) -> Row:
    return Line(width, "dialog").put("│ ", "rule").put_spans(row).to(width - 2).put(" │", "rule").row()
