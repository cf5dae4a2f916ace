"""The last half hour in a few rows."""

from collections.abc import Callable
from typing import NamedTuple

from infer_console.state.picture import Series
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import count, milliseconds, percent, rate, seconds
from infer_console.view.layout import rule
from infer_console.view.row import Line, Row, Shown
from infer_console.view.spark import fold, samples_per_cell, sparkline

_LABEL_CELLS = 10
_FIGURES_CELLS = 20


class Curve(NamedTuple):
    key: str
    label: Shown
    show: Callable[[float | None], SafeText]
    unit: Shown
    #: Fixed end of the scale; None: the largest value shown.
    top: float | None = None


#: In order of importance.
CURVES: tuple[Curve, ...] = (
    Curve("ttft_p99", "TTFT p99", seconds, "s"),
    Curve("kv", "KV", percent, "%", 1.0),
    Curve("waiting", "WAIT", count, ""),
    Curve("tokens_per_s", "TOK/S", rate, ""),
    Curve("itl_p99", "ITL p99", milliseconds, "ms"),
    Curve("running", "RUN", count, ""),
)


def history_section(history: dict[str, Series], width: int, height: int, titled: bool = True) -> list[Row]:
    """A title and up to ``height - 1`` curves, or curves alone on small terminals."""
    if height <= 0:
        return []
    cells = max(8, width - _LABEL_CELLS - _FIGURES_CELLS - 2)
    longest = max(history.values(), key=lambda series: len(series.values), default=Series(2.0))
    per_cell = samples_per_cell(longest, cells)
    covered_s = len(longest.values) * longest.interval_s
    rows: list[Row] = []
    if titled:
        cell_s = per_cell * longest.interval_s
        title = safe(f"LAST {_span(min(covered_s, cells * cell_s))}, {_span(cell_s)} a cell")
        rows.append(rule(width, title))
    for curve in CURVES[: height - len(rows)]:
        rows.append(_curve_row(curve, history.get(curve.key), cells, per_cell, width))
    return rows


def _curve_row(curve: Curve, series: Series | None, cells: int, per_cell: int, width: int) -> Row:
    line = Line(width).put(" ").put(curve.label, "label").to(_LABEL_CELLS)
    folded = fold(series or Series(1.0), cells, per_cell)
    line.put(sparkline(folded, curve.top), "spark").put(" ")
    known = [value for value in folded if value is not None]
    latest = series.values[-1] if series is not None and series.values else None
    line.put(_figure(curve, latest), "strong" if latest is not None else "dim")
    if known:
        line.to(width - 11).put("max ", "dim").put(_figure(curve, max(known)), "text")
    return line.row()


def _span(value_s: float) -> SafeText:
    """``29m`` or ``20s``."""
    return safe(f"{value_s:.0f}s" if value_s < 100 else f"{value_s / 60:.0f}m")


def _figure(curve: Curve, value: float | None) -> SafeText:
    shown = curve.show(value)
    return shown if value is None else safe(f"{shown}{curve.unit}")
