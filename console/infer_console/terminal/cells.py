"""A row of the screen as cells, each what is drawn in it and with which pen.

A character that is two cells wide is its text in the first and nothing (:data:`REST`) in the second; marks
belong to the cell of their base. So a row has as many entries as cells, and two rows can be compared cell by
cell.
"""

from functools import lru_cache

from rich.cells import get_character_cell_size

from infer_console.terminal.pen import PLAIN, Pen

Cell = tuple[str, Pen]
Cells = list[Cell]

#: The text of the second half of a wide character.
REST = ""
#: What stands in a cell about which nothing is known; no text of ours has it.
UNKNOWN: Cell = ("\x00", PLAIN)


@lru_cache(4096)
def _width(character: str) -> int:
    return get_character_cell_size(character)


def append_text(row: Cells, text: str, pen: Pen) -> None:
    """Put ``text`` behind what is in ``row``."""
    if text.isascii():
        row += [(character, pen) for character in text]
        return
    for character in text:
        match _width(character):
            case 0:
                _mark(row, character)
            case 1:
                row.append((character, pen))
            case _:
                row += [(character, pen), (REST, pen)]


def _mark(row: Cells, mark: str) -> None:
    """A combining mark goes to the character before it; without one there is nothing that it could mark."""
    at = len(row) - 1
    while at >= 0 and row[at][0] == REST:
        at -= 1
    if at >= 0:
        text, pen = row[at]
        row[at] = (text + mark, pen)


def is_wide(row: Cells, at: int) -> bool:
    """Whether the character that begins at ``at`` goes on in the next cell."""
    return at + 1 < len(row) and row[at + 1][0] == REST


def put_cells(row: Cells, at: int, cells: Cells) -> None:
    """Replace the cells of ``row`` from ``at`` on. Of a wide character that loses a half, the other half
    becomes blank."""
    stop = at + len(cells)
    if row[at][0] == REST and at > 0:
        row[at - 1] = (" ", row[at - 1][1])
    if stop < len(row) and row[stop][0] == REST:
        row[stop] = (" ", row[stop][1])
    row[at:stop] = cells


def cut_cells(cells: Cells, width: int) -> Cells:
    """The first ``width`` cells, a wide character at the end whole or blank."""
    if len(cells) <= width:
        return cells
    kept = cells[:width]
    if kept and is_wide(cells, width - 1):
        kept[-1] = (" ", kept[-1][1])
    return kept
