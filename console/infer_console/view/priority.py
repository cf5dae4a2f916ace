"""Which rows of a screen go to the terminal first when a frame may not hold them all: the vital line, then
alarms, then the pane that the operator is in, then the rest."""

from collections.abc import Sequence

from infer_console.view.alarms import CRITICAL, NOTICE, WARNING
from infer_console.view.row import Row

FIRST, ALARM, FOCUSED = 0.0, 1.0, 2.0


def row_ranks(rows: Sequence[Row]) -> list[float]:
    """A rank for every row, the lowest first. The banner, the vital line, the bottom line and a dialog are
    :data:`FIRST`; rows without a rank of their own come nearer the cursor first."""
    cursor = next((y for y, row in enumerate(rows) if _on(row, "cursor")), len(rows) // 2)
    ranks: list[float] = []
    for y, row in enumerate(rows):
        if y < 2 or y == len(rows) - 1 or _on(row, "dialog") or _on(row, "field"):
            ranks.append(FIRST)
        elif _is_alarm(row):
            ranks.append(ALARM)
        else:
            ranks.append(FOCUSED + abs(y - cursor) / len(rows))
    return ranks


def _on(row: Row, tone: str) -> bool:
    return any(span.tone == tone for span in row)


def _is_alarm(row: Row) -> bool:
    """An alarm begins with its sign; other rows have it in the middle, if at all."""
    start = "".join(span.text for span in row[:3]).lstrip()[:1]
    return start in (CRITICAL, WARNING, NOTICE)
