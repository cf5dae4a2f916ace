"""Free text wrapped into rows of a pane, bounded in rows and in work."""

from itertools import groupby
from typing import NamedTuple

from infer_console.terminal.safe_text import (
    ELLIPSIS,
    Cluster,
    SafeText,
    fit_text,
    join_text,
    safe,
    safe_clusters,
)

#: Characters of one text looked at, at most; the end of it counts, since it is what streams.
MAX_CHARACTERS = 256 * 1024
MAX_ROWS = 2000
_STEP = 4096
ELLIPSIS_TEXT = safe(ELLIPSIS)


class Piece(NamedTuple):
    """A run of one row: ``cells`` wide, ``escaped`` where it stands for something that may not be printed."""

    text: SafeText
    cells: int
    escaped: bool


PaneRow = tuple[Piece, ...]


def wrap(text: str, width: int, max_rows: int = MAX_ROWS) -> list[PaneRow]:
    """The last ``max_rows`` rows of ``text``, wrapped at ``width`` cells between words and clusters.

    Newlines break rows and tabs are four spaces. Works from the last line up, so the cost follows what is
    shown.
    """
    width = max(1, width)
    max_rows = min(max_rows, MAX_ROWS)
    rows: list[list[PaneRow]] = []
    wanted = max_rows
    for line in reversed(text[-MAX_CHARACTERS:].split("\n")):
        if wanted <= 0:
            break
        wrapped = _wrap_line(_end_of(line, wanted * width).replace("\t", "    ").removesuffix("\r"), width)
        rows.append(wrapped)
        wanted -= len(wrapped)
    flat = [row for wrapped in reversed(rows) for row in wrapped]
    return flat[-max_rows:] if max_rows > 0 else []


def _end_of(line: str, cells: int) -> str:
    """Enough of a long line's end to fill ``cells``. It begins at a multiple of a large step, so that the
    breaks of a line that grows stay where they are."""
    return line[max(0, (len(line) - cells) // _STEP) * _STEP :]


def _wrap_line(line: str, width: int) -> list[PaneRow]:
    """Rows of one line: broken after the last blank that fits, inside a word only where it is longer than
    half a row."""
    if line.isascii() and line.isprintable():
        return [(Piece(chunk, len(chunk), False),) if chunk else () for chunk in _ascii_rows(line, width)]
    clusters = [_fitted(cluster, width) for cluster in safe_clusters(line)]
    rows: list[PaneRow] = []
    start = used = 0
    blank: int | None = None  # the cluster after the last blank of this row
    for at, cluster in enumerate(clusters):
        while used + cluster.cells > width:  # again where what came after the blank is too much with it
            stop = blank if blank is not None and (blank - start) * 2 > at - start else at
            rows.append(_row(clusters[start:stop]))
            start, blank = stop, None
            used = sum(each.cells for each in clusters[start:at])
        used += cluster.cells
        if cluster.text == " ":
            blank = at + 1
    return [*rows, _row(clusters[start:])]


def _ascii_rows(line: str, width: int) -> list[SafeText]:
    rows: list[SafeText] = []
    start = 0
    while len(line) - start > width:
        blank = line.rfind(" ", start, start + width) + 1
        stop = blank if (blank - start) * 2 > width else start + width
        rows.append(safe(line[start:stop]))
        start = stop
    return [*rows, safe(line[start:])]


def _fitted(cluster: Cluster, width: int) -> Cluster:
    """A cluster wider than the pane is cut: an escaped form is ASCII, and a wide character has no half."""
    if cluster.cells <= width:
        return cluster
    return Cluster(fit_text(cluster.text, width) if cluster.escaped else ELLIPSIS_TEXT, width, True)


def _row(clusters: list[Cluster]) -> PaneRow:
    """Neighbours of one kind put together."""
    pieces: list[Piece] = []
    for escaped, group in groupby(clusters, key=lambda cluster: cluster.escaped):
        members = list(group)
        text = join_text("", [cluster.text for cluster in members])
        pieces.append(Piece(text, sum(cluster.cells for cluster in members), escaped))
    return tuple(pieces)
