"""Free text wrapped into rows of a pane, bounded in rows and in work."""

from typing import NamedTuple

from infer_console.terminal.safe_text import ELLIPSIS, SafeText, fit_text, join_text, safe, safe_clusters

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
    """The last ``max_rows`` rows of ``text``, hard-wrapped at ``width`` cells between clusters.

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
    if line.isascii() and line.isprintable():
        starts = range(0, max(1, len(line)), width)
        chunks = [safe(line[start : start + width]) for start in starts]
        return [(Piece(chunk, len(chunk), False),) if chunk else () for chunk in chunks]
    rows: list[PaneRow] = []
    row: list[Piece] = []
    run: list[SafeText] = []
    run_cells, run_escaped, used = 0, False, 0

    def end_run() -> None:
        nonlocal run, run_cells
        if run:
            row.append(Piece(join_text("", run), run_cells, run_escaped))
            run, run_cells = [], 0

    for cluster in safe_clusters(line):
        text, cells, escaped = cluster
        if cells > width:  # cut: an escaped form is ASCII, and a wide character has no half
            text, cells, escaped = fit_text(text, width) if escaped else ELLIPSIS_TEXT, width, True
        if used + cells > width:
            end_run()
            rows.append(tuple(row))
            row, used = [], 0
        if escaped != run_escaped:
            end_run()
            run_escaped = escaped
        run.append(text)
        run_cells += cells
        used += cells
    end_run()
    rows.append(tuple(row))
    return rows
