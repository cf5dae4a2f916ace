"""The last half hour in a few rows, over a time axis that says what happened when."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from infer_console.state.picture import Picture, Series
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import clock_in_lists, mean_count, milliseconds, percent, rate, seconds
from infer_console.view.layout import rule
from infer_console.view.marks import Mark, marks
from infer_console.view.row import Line, Role, Row, Shown
from infer_console.view.spark import fold, samples_per_cell, sparkline, tall_sparkline

_LABEL_CELLS = 10
_FIGURES_CELLS = 20
#: Rows of one curve; higher ones tell no more.
MOST_TALL = 3


class Curve(NamedTuple):
    key: str
    label: Shown
    show: Callable[[float | None], SafeText]
    unit: Shown
    #: Fixed end of the scale; None: the largest value shown.
    top: float | None = None
    #: What the scale reaches at least: a part of one request is no full bar.
    least_top: float = 0.0


#: In order of importance.
CURVES: tuple[Curve, ...] = (
    Curve("ttft_p99", "TTFT p99", seconds, "s"),
    Curve("kv", "KV", percent, "%", 1.0),
    Curve("waiting", "WAIT", mean_count, "", least_top=1.0),
    Curve("tokens_per_s", "TOK/S", rate, ""),
    Curve("itl_p99", "ITL p99", milliseconds, "ms"),
    Curve("running", "RUN", mean_count, "", least_top=1.0),
)


def _picked(*keys: str) -> tuple[Curve, ...]:
    return tuple(next(curve for curve in CURVES if curve.key == key) for key in keys)


#: What a replica's batch, memory, queue and speed were: in rows, and beside each other in one.
REPLICA_CURVES = _picked("ttft_p99", "kv", "running", "waiting", "tokens_per_s", "itl_p99")
STRIP = _picked("running", "kv", "waiting", "tokens_per_s")


class Axis(NamedTuple):
    """The time that the cells of a section stand for."""

    cells: int
    per_cell: int
    interval_s: float
    #: Unix seconds at which the last cell began.
    last_at: float

    @property
    def cell_s(self) -> float:
        return self.per_cell * self.interval_s

    def cell_of(self, at: float) -> int:
        """The cell of a moment; under 0 before the first one."""
        return self.cells - 1 + math.floor((at - self.last_at) / self.cell_s)


def axis_of(history: dict[str, Series], cells: int, now_at: float) -> Axis:
    longest = max(history.values(), key=lambda series: len(series.values), default=Series(2.0))
    per_cell = samples_per_cell(longest, cells)
    taken = max(longest.taken, len(longest.values))
    into_last = (taken - 1) % per_cell if taken else 0
    return Axis(cells, per_cell, longest.interval_s, now_at - into_last * longest.interval_s)


def history_section(
    picture: Picture,
    width: int,
    height: int,
    titled: bool = True,
    replica: str | None = None,
    tall: bool = False,
    until: Shown = "now",
) -> list[Row]:
    """A title, curves, and under them the time axis with what happened; curves alone where there is no room
    for three of them and it all. Of the fleet, or of one replica. ``tall``: each as high as all of them find
    room. ``until`` is what the axis ends with."""
    if height <= 0:
        return []
    own = picture.replicas.get(replica) if replica is not None else None
    history = picture.history if own is None else own.history
    curves = CURVES if own is None else REPLICA_CURVES
    cells = max(8, width - _LABEL_CELLS - _FIGURES_CELLS - 2)
    axis = axis_of(history, cells, picture.at)
    rows: list[Row] = []
    if titled:
        longest = max((len(series.values) for series in history.values()), default=0)
        covered_s = min(longest * axis.interval_s, cells * axis.cell_s)
        rows.append(rule(width, safe(f"LAST {_span(covered_s)}, {_span(axis.cell_s)} a cell")))
    with_axis = height - len(rows) >= 4 and bool(history)
    shown = curves[: height - len(rows) - (1 if with_axis else 0)]
    each = (height - len(rows) - with_axis) // max(1, len(shown)) if tall else 1
    apart = each > 2  # full bars of two curves would stand as one
    for index, curve in enumerate(shown):
        rows += [Line(width).row()] if apart and index else []
        bars = min(MOST_TALL, each - 1) if apart else 1
        rows += _curve_rows(curve, history.get(curve.key), axis, width, bars)
    if with_axis:
        rows.append(axis_row(axis, marks(picture, replica), width, until))
    return rows


def _curve_rows(curve: Curve, series: Series | None, axis: Axis, width: int, height: int) -> list[Row]:
    """Its name and what it is now are in the last of them, the end of its scale in the first."""
    folded = fold(series or Series(1.0), axis.cells, axis.per_cell)
    *upper, lowest = tall_sparkline(folded, height, curve.top, curve.least_top)
    rows = [Line(width).to(_LABEL_CELLS).put(bars, "spark").row() for bars in upper]
    if upper:
        ends = curve.top if curve.top is not None else max((each for each in folded if each), default=None)
        line = Line(width).to(_LABEL_CELLS).put(upper[0], "spark")
        rows[0] = line.put(" to ", "dim").put(_figure(curve, ends), "dim").row()
    return [*rows, _curve_row(curve, series, folded, lowest, width)]


def _curve_row(
    curve: Curve, series: Series | None, folded: list[float | None], bars: SafeText, width: int
) -> Row:
    line = Line(width).put(" ").put(curve.label, "label").to(_LABEL_CELLS)
    line.put(bars, "spark").put(" ")
    known = [value for value in folded if value is not None]
    latest = series.values[-1] if series is not None and series.values else None
    line.put(_figure(curve, latest), "strong" if latest is not None else "dim")
    if known:
        usual = median(known[: max(1, len(known) // 4)])
        line.to(width - 12).put(" was ", "dim").put(_figure(curve, usual), "text")
    return line.row()


#: Minutes between two times on the axis; the first that leaves room is taken.
_TICKS_MIN = (1, 2, 5, 10, 30, 60)
_TICK_CELLS = 12


#: Of what stands before a mark's sign.
MOST_WORD = 14


def time_row(picture: Picture, width: int, replica: str, note: Shown = "") -> Row:
    """The axis alone, where curves have no rows of their own, and what is done with it."""
    own = picture.replicas[replica]
    cells = max(8, width - _LABEL_CELLS - (len(note) + 3 if note else 1))
    axis = axis_of(own.history, cells, picture.at)
    row = axis_row(axis, marks(picture, replica), _LABEL_CELLS + cells, label="TIME", track="─")
    return Line(width).put_spans(row).right(note, "dim").row()


def axis_row(
    axis: Axis,
    happened: Sequence[Mark],
    width: int,
    until: Shown = "now",
    *,
    label: Shown = "",
    track: Shown = " ",
) -> Row:
    """``02:41 ─── 02:51 ──── acme▲ ── D now``: times where nothing happened, else what did."""
    letters: list[tuple[str, Role]] = [(" ", "dim")] * axis.cells
    _put_times(letters, axis, until)
    end = axis.cells - len(until) - 1
    for offset, letter in enumerate(f" {until}"):
        if end >= 0:
            letters[end + offset] = (letter, "dim")
    for mark in happened:
        cell = axis.cell_of(mark.at)
        if not 0 <= cell < axis.cells:
            continue
        word = f"{mark.word[:MOST_WORD]} " if mark.word else ""
        start = cell - len(word)
        free = start >= 0 and all(role == "dim" for _, role in letters[max(0, start - 1) : cell])
        if free:
            _blank_around(letters, start, cell)
            for offset, letter in enumerate(word):
                letters[start + offset] = (letter, "text")
        elif letters[cell][1] == "dim" and letters[cell][0] != " ":
            _blank_around(letters, cell, cell)  # half a time is none
        letters[cell] = (mark.sign, mark.role)
    now = range(max(0, end + 1), axis.cells)
    if any(letters[cell][1] != "dim" for cell in now):  # no part of a word
        for cell in now:
            if letters[cell][1] == "dim":
                letters[cell] = (" ", "dim")
    line = Line(width).put(" ").put(label, "label").to(_LABEL_CELLS)
    for blank, alike in groupby(letters, lambda letter: letter == (" ", "dim")):
        if blank:
            line.put(safe(track * len(list(alike))), "rule")
            continue
        for role, same in groupby(alike, itemgetter(1)):
            line.put(safe("".join(letter for letter, _ in same)), role)
    return line.row()


def _put_times(letters: list[tuple[str, Role]], axis: Axis, until: Shown) -> None:
    step_s = 60 * next(
        (each for each in _TICKS_MIN if each * 60 / axis.cell_s >= _TICK_CELLS), _TICKS_MIN[-1]
    )
    first_at = axis.last_at - (axis.cells - 1) * axis.cell_s
    at = math.ceil(first_at / step_s) * step_s
    while at <= axis.last_at:
        cell = axis.cell_of(at)
        text = clock_in_lists(at)[:5]
        if cell >= 0 and cell + len(text) < axis.cells - len(until) - 2:
            for offset, letter in enumerate(text):
                letters[cell + offset] = (letter, "dim")
        at += step_s


def _blank_around(letters: list[tuple[str, Role]], start: int, stop: int) -> None:
    """Take away what is left of a time that a word covers in part."""
    for cell in range(start, stop):
        letters[cell] = (" ", "text")
    for step, cell in ((-1, start - 1), (1, stop + 1)):
        while 0 <= cell < len(letters) and letters[cell] not in ((" ", "dim"), (" ", "text")):
            if letters[cell][1] != "dim":
                break
            letters[cell] = (" ", "dim")
            cell += step


def _span(value_s: float) -> SafeText:
    """``29m``, ``1m38s`` or ``20s``, rounded down: time that is not shown is not claimed."""
    whole_s = int(value_s)
    minutes, rest_s = divmod(whole_s, 60)
    if whole_s < 60:
        return safe(f"{whole_s}s")
    return safe(f"{minutes}m{rest_s:02d}s" if whole_s < 600 and rest_s else f"{minutes}m")


def strip_row(history: dict[str, Series], width: int, curves: Sequence[Curve]) -> Row:
    """Several curves beside each other in one row, each with its peak: what is now stands above."""
    line = Line(width)
    share = width // max(1, len(curves))
    for index, curve in enumerate(curves):
        series = history.get(curve.key) or Series(1.0)
        known = [value for value in series.values if value is not None]
        peak = safe(f"max {_figure(curve, max(known, default=None))}")
        line.to(index * share).put(" ").put(curve.label, "label").put(" ")
        cells = share - len(curve.label) - len(peak) - 4
        if cells > 0:
            folded = fold(series, cells, samples_per_cell(series, cells))
            line.put(sparkline(folded, curve.top, curve.least_top), "spark").put(" ")
        line.put(peak, "dim")
    return line.row()


def _figure(curve: Curve, value: float | None) -> SafeText:
    shown = curve.show(value)
    return shown if value is None else safe(f"{shown}{curve.unit}")
