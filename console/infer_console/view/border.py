"""The border round every screen of a production server: not to be mistaken for anything else, not even in the
corner of an eye. The banner's PROD says the same in words."""

from infer_console.view.look import Size
from infer_console.view.row import Line, Row, crop, with_tone

#: From this width on both sides have a cell of their own. On narrower terminals, where two cells are a column
#: of a table, the left side is the ground of every row's first cell, which is empty but for the cursor. The
#: right one is not: what changes in a last cell would be written with another ground each time.
SIDES_FROM = 102

_EDGE: Row = Line(1, "production").put(" ").row()


def inside(size: Size) -> Size:
    """What the border leaves to the screen. Its upper and lower side are the banner and the keys."""
    return Size(max(1, size.width - (2 if size.width >= SIDES_FROM else 1)), size.height)


def bordered(rows: list[Row], width: int) -> list[Row]:
    """``rows``, as wide as :func:`inside` says, on all sides of which there is production's ground."""
    return [_sided(_barred(row) if y in (0, len(rows) - 1) else row, width) for y, row in enumerate(rows)]


def _barred(row: Row) -> Row:
    """A notice or the command line in the place of the keys leaves the border whole."""
    return tuple(span._replace(tone="production") if span.tone == "bar" else span for span in row)


def _sided(row: Row, width: int) -> Row:
    if width >= SIDES_FROM:
        return (*_EDGE, *row, *_EDGE)
    if width < 2:
        return with_tone(row, "production")
    return (*with_tone(crop(row, 0, 1), "production"), *crop(row, 1, width - 1), *_EDGE)
