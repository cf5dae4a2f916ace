"""What the terminal should show beside what it shows, and the bytes that make the one the other.

Both are kept, so nothing is lost where a frame, or a part of one, is not written: what is still missing is
what still differs, and the next frame that is written brings it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from infer_console.terminal.cells import REST, UNKNOWN, Cells, cut_cells, is_wide, put_cells
from infer_console.terminal.pen import PLAIN, RESET, Pen, change_pen
from infer_console.terminal.shifts import MOST, best_shift

#: Around a frame: the terminal shows it at once, if it said that it can.
SYNC_BEGIN, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
#: Unchanged cells between two changed runs that are written again where that is shorter than a move.
_BRIDGE_BYTES = 6
#: Frames after which a row that had to wait comes one rank sooner.
_PATIENCE = 3
#: Where something else stands in the first cells, it is another row than before: it comes a rank sooner,
#: else a table whose rows changed places shows some twice and others not at all. Of an event it is the hour.
_NAME_CELLS = 5


class Painted(NamedTuple):
    """Bytes to write, and whether anything is still missing after them."""

    text: str
    complete: bool


class Frame:
    """A screen of ``width`` × ``height`` cells. At the start nothing is known of what the terminal shows."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._wanted: list[Cells] = [[UNKNOWN] * width for _ in range(height)]
        self._shown: list[Cells] = [[UNKNOWN] * width for _ in range(height)]
        #: Rows that may differ, each with the number of frames that went out without it.
        self._owed: dict[int, int] = {}

    @property
    def wanted(self) -> list[Cells]:
        return self._wanted

    @property
    def shown(self) -> list[Cells]:
        return self._shown

    @property
    def complete(self) -> bool:
        """Whether the terminal shows what it should, as far as is known."""
        return not self._owed

    def put(self, x: int, y: int, cells: Cells) -> None:
        """``cells`` should stand in row ``y`` from column ``x`` on; what is beyond the edges is cut."""
        if not 0 <= y < self.height or not 0 <= x < self.width:
            return
        cells = cut_cells(cells, self.width - x)
        row = self._wanted[y]
        if row[x : x + len(cells)] != cells:
            put_cells(row, x, cells)
            self._owed.setdefault(y, 0)

    def forget(self) -> None:
        """The terminal may show anything: all of it is written again."""
        self._shown = [[UNKNOWN] * self.width for _ in range(self.height)]
        self._owed = {y: self._owed.get(y, 0) for y in range(self.height)}

    def paint(self, budget_bytes: int | None = None, rank: Callable[[int], float] | None = None) -> Painted:
        """What brings the terminal up to date, the rows of the lowest ``rank`` first. With a budget whole
        rows that do not fit into it are left for later, except for the first; rows that only moved are moved
        before, so that what is left is old but stands in its place. What is returned has to be written: from
        here on it counts as shown."""
        texts: list[str] = [] if budget_bytes is None else self._move_rows(budget_bytes)
        writer = _Writer(self.width)
        spent = 0
        for y in self._order(rank if budget_bytes is not None else None):
            spans = changed_spans(self._wanted[y], self._shown[y])
            before = writer.state
            text = writer.row(y, self._wanted[y], spans)
            cost = len(text.encode())
            if budget_bytes is not None and spent and spent + cost > budget_bytes:
                writer.state = before
                self._owed[y] += 1
                continue
            spent += cost
            texts.append(text)
            del self._owed[y]
            for start, stop in spans:
                self._shown[y][start:stop] = self._wanted[y][start:stop]
        text = "".join(texts)
        return Painted(text + RESET if text else "", self.complete)

    def _move_rows(self, budget_bytes: int) -> list[str]:
        """Where not all fits, what moves the rows that stand elsewhere now."""
        texts: list[str] = []
        while len(texts) < MOST and self._missing_cells() > budget_bytes:
            shift = best_shift(self._wanted, self._shown)
            if shift is None:
                break
            texts.append(shift.sequence())
            rows = {y: self._shown[y] for y in range(shift.top, shift.bottom)}
            waited = {y + shift.by: self._owed.get(y, 0) for y in rows}
            for y in rows:
                self._shown[y] = rows.get(y - shift.by) or [UNKNOWN] * self.width
                self._owed.pop(y, None)
                if self._shown[y] != self._wanted[y]:
                    # What is blank now comes sooner than what is only old.
                    self._owed[y] = 2 * _PATIENCE if y in shift.blank else waited.get(y, 0)
        return texts

    def _missing_cells(self) -> int:
        return sum(
            stop - start for y in self._owed for start, stop in changed_spans(self._wanted[y], self._shown[y])
        )

    def _order(self, rank: Callable[[int], float] | None) -> list[int]:
        if rank is None:
            return sorted(self._owed)
        return sorted(self._owed, key=lambda y: (rank(y) - self._sooner(y), y))

    def _sooner(self, y: int) -> int:
        """Ranks by which a row comes before what else has its rank."""
        renamed = self._wanted[y][:_NAME_CELLS] != self._shown[y][:_NAME_CELLS]
        return self._owed[y] // _PATIENCE + renamed


def changed_spans(wanted: Cells, shown: Cells) -> list[tuple[int, int]]:
    """The runs of cells, first to one past the last, in which two rows differ. Wide characters are in them
    whole, those that go as well as those that come."""
    if wanted == shown:
        return []
    changed = [
        at
        for at, (want, have) in enumerate(zip(wanted, shown, strict=True))
        if want != have and want is not UNKNOWN
    ]
    if any(row[at][0] == REST or is_wide(row, at) for row in (wanted, shown) for at in changed):
        changed = sorted({each for at in changed for each in _whole(at, wanted, shown)})
    spans: list[tuple[int, int]] = []
    for at in changed:
        if spans and spans[-1][1] == at:
            spans[-1] = (spans[-1][0], at + 1)
        else:
            spans.append((at, at + 1))
    return spans


def _whole(at: int, wanted: Cells, shown: Cells) -> range:
    """The cells of the characters of both rows that have a part in the cell ``at``."""
    start, stop = at, at + 1
    grown = True
    while grown:
        grown = False
        for row in (wanted, shown):
            if start > 0 and row[start][0] == REST:
                start, grown = start - 1, True
            if is_wide(row, stop - 1):
                stop, grown = stop + 1, True
    return range(start, stop)


class _State(NamedTuple):
    """Where the cursor is, as far as is known, and the pen. ``column`` is None behind the last column, where
    terminals differ, and behind a character whose width they may see differently."""

    row: int | None = None
    column: int | None = None
    pen: Pen = PLAIN


class _Writer:
    """Cells to bytes."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.state = _State()

    def row(self, y: int, cells: Cells, spans: Sequence[tuple[int, int]]) -> str:
        parts: list[str] = []
        for start, stop in spans:
            parts.append(self._move(y, start, cells))
            parts.append(self._cells(y, cells, start, stop))
        return "".join(parts)

    def _move(self, y: int, x: int, cells: Cells) -> str:
        """To a cell: along the row by writing over what stands there, or by a move."""
        row, column, pen = self.state
        if row != y:
            return f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"
        if column == x:
            return ""
        move = f"\x1b[{x + 1}G"
        if column is not None and column < x <= column + _BRIDGE_BYTES:
            between = cells[column:x]
            if all(each == pen and text.isascii() and text != REST for text, each in between):
                bridge = "".join(text for text, _ in between)
                if "\x00" not in bridge and len(bridge) <= len(move):
                    return bridge
        return move

    def _cells(self, y: int, cells: Cells, start: int, stop: int) -> str:
        parts: list[str] = []
        pen = self.state.pen
        unsure = False
        for at in range(start, stop):
            text, each = cells[at]
            if text == REST:
                continue
            if unsure:
                parts.append(f"\x1b[{at + 1}G")
            if each != pen:
                parts.append(change_pen(pen, each))
                pen = each
            parts.append(text)
            # Terminals may disagree about the width of such a character; ours counts.
            unsure = is_wide(cells, at) or len(text) > 1
        self.state = _State(y, None if unsure or stop >= self._width else stop, pen)
        return "".join(parts)
