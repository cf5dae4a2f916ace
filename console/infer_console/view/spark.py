"""A series as one row of bars on a fixed scale."""

import math

from infer_console.state.picture import Series
from infer_console.terminal.safe_text import SafeText, safe

BARS = "▁▂▃▄▅▆▇█"
#: What is not known is a gap, never a low bar.
GAP = " "


def samples_per_cell(series: Series, cells: int) -> int:
    """How many samples one cell stands for, so that ``cells`` cells show about all there is."""
    return max(1, round(len(series.values) / max(1, cells)))


def fold(series: Series, cells: int, per_cell: int) -> list[float | None]:
    """The last ``cells`` cells, each the largest of its samples; None where nothing was known.

    Cells begin at multiples of ``per_cell`` of all samples ever taken, so a new sample changes the last cell
    only.
    """
    values = series.values
    first_sample = max(series.taken, len(values)) - len(values)
    start = -(first_sample % per_cell)
    folded: list[float | None] = []
    for at in range(start, len(values), per_cell):
        known = [value for value in values[max(0, at) : at + per_cell] if value is not None]
        folded.append(max(known) if known else None)
    return [*[None] * (cells - len(folded)), *folded[-cells:]]


def sparkline(values: list[float | None], top: float | None = None, least_top: float = 0.0) -> SafeText:
    """One bar per value. The scale starts at 0 and ends at ``top``, or at the largest value and not below
    ``least_top``."""
    return tall_sparkline(values, 1, top, least_top)[0]


def tall_sparkline(
    values: list[float | None], rows: int, top: float | None = None, least_top: float = 0.0
) -> list[SafeText]:
    """The same over several rows, the uppermost first."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    most = top if top is not None else max(least_top, *known, 0.0)
    steps = rows * len(BARS)
    levels = [
        None
        if value is None or not math.isfinite(value)
        else min(steps - 1, int(max(0.0, value) / most * steps))
        if most > 0
        else 0
        for value in values
    ]
    bases = [row * len(BARS) for row in reversed(range(rows))]
    return [safe("".join(_bar(level, base) for level in levels)) for base in bases]


def _bar(level: int | None, base: int) -> str:
    """What of a bar is in the row that begins at ``base``."""
    if level is None or level < base:
        return GAP
    return BARS[min(len(BARS) - 1, level - base)]
