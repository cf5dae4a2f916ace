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
    known = [value for value in values if value is not None and math.isfinite(value)]
    most = top if top is not None else max(least_top, *known, 0.0)
    bars = [
        GAP
        if value is None or not math.isfinite(value)
        else BARS[min(len(BARS) - 1, int(max(0.0, value) / most * len(BARS)))]
        if most > 0
        else BARS[0]
        for value in values
    ]
    return safe("".join(bars))
