"""Bars: a pool with its marks, shares, progress."""

from typing import NamedTuple

from infer_engine.protocol import Kv

from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.row import Line, Role, Row

BATCH_MARK = "╎"
ADMIT_MARK = "┃"


class _Glyph(NamedTuple):
    text: str
    role: Role


_USED, _CACHED, _FREE = _Glyph("█", "used"), _Glyph("▒", "cached"), _Glyph("·", "free")


def _share(part: int, total: int, cells: int) -> int:
    """Cells for ``part`` of ``total``: something is never drawn as nothing, nor almost all as all."""
    if part <= 0 or total <= 0:
        return 0
    drawn = round(part / total * cells)
    if part < total:
        drawn = min(drawn, max(1, cells - 1))
    return max(1, min(drawn, cells))


def _marks(kv: Kv) -> list[tuple[int, str]]:
    """The limits that are known, lowest first. Batch requests heed the admit limit too."""
    batch = kv.batch_limit
    if batch is not None and kv.admit_limit is not None:
        batch = min(batch, kv.admit_limit)
    marks = [(batch, BATCH_MARK), (kv.admit_limit, ADMIT_MARK)]
    return sorted(((limit, glyph) for limit, glyph in marks if limit is not None), key=lambda mark: mark[0])


def kv_gauge(kv: Kv, width: int) -> Row:
    """Used ``█``, cached ``▒``, free ``·``, with the batch mark ``╎`` and the admit mark ``┃`` between the
    cells."""
    line = Line(width)
    if not kv.total or kv.used is None or width < 4:
        return line.put("–", "dim").row()
    known = _marks(kv)
    cells = width - len(known)
    used = _share(kv.used, kv.total, cells)
    cached = min(_share(kv.cached or 0, kv.total, cells), cells - used)
    at = [(min(cells, max(0, round(limit / kv.total * cells))), glyph) for limit, glyph in known]
    position = 0
    for stop, glyph in [*at, (cells, None)]:
        _fill(line, position, stop, used, used + cached)
        position = max(position, stop)
        if glyph is not None:
            line.put(safe(glyph), "mark")
    return line.row()


def _fill(line: Line, start: int, stop: int, used: int, held: int) -> None:
    """The cells from ``start`` to ``stop``: used ones, then cached ones up to ``held``, then free ones."""
    for first, last, glyph in (
        (start, min(stop, used), _USED),
        (max(start, used), min(stop, held), _CACHED),
        (max(start, held), stop, _FREE),
    ):
        if last > first:
            line.put(safe(glyph.text * (last - first)), glyph.role)


def kv_head(kv: Kv | None, width: int) -> Row:
    """The gauge's column head, the marks' percentages above the marks where they fit."""
    line = Line(width).put("KV", "label")
    if kv is None or not kv.total or width < 12:
        return line.row()
    known = _marks(kv)
    cells = width - len(known)
    placed: list[tuple[int, SafeText]] = []
    for passed, (limit, glyph) in enumerate(known):
        text = safe(f"{glyph}{round(limit / kv.total * 100)}")
        placed.append((round(limit / kv.total * cells) + passed, text))
    if len(placed) == 2 and placed[0][0] + len(placed[0][1]) >= placed[1][0]:
        placed = placed[1:]  # no room for both: the mark that all heed stays
    for column, text in placed:
        if line.used < column and column + len(text) <= width:
            line.to(column).put(text, "label")
    return line.row()


def bar(value: float, most: float, cells: int, role: Role = "used") -> Row:
    """A bar of ``value`` against ``most``; anything over zero shows at least a sliver."""
    if most <= 0 or value <= 0 or cells <= 0:
        return ()
    eighths = max(1, round(min(1.0, value / most) * cells * 8))
    full, rest = divmod(eighths, 8)
    return (
        Line(full + (1 if rest else 0)).put(safe("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")), role).row()
    )


def progress(done: int, total: int, cells: int) -> Row:
    """Done ``█`` and to do ``·`` in ``cells`` cells; full only when done."""
    filled = _share(done, total, cells)
    return Line(cells).put(safe("█" * filled), "accent").put(safe("·" * (cells - filled)), "free").row()
