"""The KV grid drawn: a column for each token, a row for each layer, ``│`` where a block begins."""

from dataclasses import dataclass

from infer_console.planning.kv_grid import KvGrid
from infer_console.terminal.safe_text import safe
from infer_console.view.format import count
from infer_console.view.layout import rule
from infer_console.view.row import Line, Role, Row

#: Cells of a layer's name, and of a token where there is room.
_LABEL, _WIDEST = 8, 3
#: Free slots that are drawn of a block that is larger than what is in it.
_MOST_FREE = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """``tokens`` of a cell, ``cells`` of a column; ``bounds``: there is room to mark where blocks begin."""

    tokens: int
    cells: int
    bounds: bool


def columns_of(grid: KvGrid, room: int) -> Columns:
    """As few tokens in a cell as make all of them fit."""
    slots = _drawn(grid)
    for tokens in _sizes(grid.block_size):
        whole = _cells(grid, slots, tokens)
        if whole + grid.blocks + 1 <= room:
            wide = (room - grid.blocks - 1) // whole if tokens == 1 else 1
            return Columns(tokens, min(_WIDEST, wide), True)
    return Columns(grid.block_size * -(-grid.blocks // max(1, room)), 1, False)


def _sizes(block_size: int) -> list[int]:
    doubled = [1 << power for power in range(block_size.bit_length()) if 1 << power < block_size]
    return [*doubled, block_size]


def _drawn(grid: KvGrid) -> int:
    return grid.tokens + min(grid.free_slots, _MOST_FREE)


def _cells(grid: KvGrid, slots: int, tokens: int) -> int:
    full, rest = divmod(slots, grid.block_size)
    return full * -(-grid.block_size // tokens) + -(-rest // tokens)


def grid_rows(grid: KvGrid, width: int, height: int) -> list[Row]:
    """At most ``height`` rows: a title, the blocks, and the layers, several of which share a row where there
    are more than that."""
    columns = columns_of(grid, width - _LABEL - 1)
    per_row = -(-grid.layers // max(1, height - 2))
    rows = [
        rule(width, "LAYERS × TOKENS", note=safe(_scale(columns, per_row))),
        _blocks(grid, columns, width),
    ]
    runs = _runs(grid, columns)
    for first in range(0, grid.layers, per_row):
        last = min(first + per_row, grid.layers) - 1
        name = f" L{first}" if first == last else f" L{first}–{last}"
        line = Line(width).put(safe(name, _LABEL), "label").to(_LABEL)
        for text, role in runs:
            line.put(safe(text), role)
        rows.append(line.row())
    return rows


def _scale(columns: Columns, per_row: int) -> str:
    layers = "1 layer" if per_row == 1 else f"{per_row} layers"
    return f"█ prefill ▓ decode · free   a cell is {columns.tokens} tok × {layers}"


def _blocks(grid: KvGrid, columns: Columns, width: int) -> Row:
    """Which block it is, over its first token; over the newest token ``▾``."""
    line = Line(width).to(_LABEL)
    newest = grid.tokens - 1 if grid.steps else None
    if not columns.bounds:
        line.put("blocks of ", "dim").put(count(grid.block_size), "dim").put(" are not told apart", "dim")
        return line.row()
    for block in range(grid.blocks):
        first = block * grid.block_size
        slots = min(grid.block_size, _drawn(grid) - first)
        cells = -(-slots // columns.tokens) * columns.cells
        name = safe(f"b{block}") if len(f"b{block}") <= cells else safe("")
        line.put("│", "mark")
        start = line.used
        if newest is not None and first <= newest < first + grid.block_size:
            at = (newest - first) // columns.tokens * columns.cells
            line.put(name if len(name) < at else "", "label").to(start + at).put("▾", "accent")
        else:
            line.put(name, "label")
        line.to(start + cells)
    return line.row()


def _runs(grid: KvGrid, columns: Columns) -> list[tuple[str, Role]]:
    """What is in every layer: K and V of the same tokens."""
    runs: list[tuple[str, Role]] = []
    slots = _drawn(grid)
    at = 0
    while at < slots:
        in_block = at % grid.block_size
        if in_block == 0 and columns.bounds:
            runs.append(("│", "mark"))
        left = grid.block_size - in_block if columns.bounds else columns.tokens
        end = min(at + min(columns.tokens, left), slots)
        glyph, role = _glyph(grid, at, end)
        if runs and runs[-1][1] == role:
            runs[-1] = (runs[-1][0] + glyph * columns.cells, role)
        else:
            runs.append((glyph * columns.cells, role))
        at = end
    hidden = grid.blocks * grid.block_size - slots
    runs.append((f"… {hidden} more free", "dim") if hidden else ("│", "mark"))
    return runs


def _glyph(grid: KvGrid, first: int, end: int) -> tuple[str, Role]:
    if first >= grid.tokens:
        return "·", "free"
    if end <= grid.prompt:
        return "█", "used"
    newest = first <= grid.tokens - 1 < end
    return "▓", "accent" if newest else "selected"
