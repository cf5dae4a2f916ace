"""Tokens as they are generated: one or several requests' text side by side."""

from infer_engine.protocol import RequestRow

from infer_console.state.picture import Picture, ReplicaPicture, StreamPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.terminal.wrap import wrap
from infer_console.view.format import age, count, milliseconds
from infer_console.view.layout import fill
from infer_console.view.row import Line, Role, Row, beside

MIN_PANEL_WIDTH = 38
MIN_PANEL_HEIGHT = 5
MAX_PANELS = 12


def grid(panels: int, width: int, height: int) -> tuple[int, int]:
    """Columns and rows of panels: as few rows as give each panel a readable width."""
    panels = max(1, panels)
    most_columns = max(1, width // MIN_PANEL_WIDTH)
    most_rows = max(1, height // MIN_PANEL_HEIGHT)
    columns = min(most_columns, max(1, round(panels**0.5)) if panels > 2 else panels)
    rows = min(most_rows, -(-panels // columns))
    while columns * rows < panels and columns < most_columns:
        columns += 1
        rows = min(most_rows, -(-panels // columns))
    return columns, rows


def capacity(width: int, height: int) -> int:
    """How many panels fit at most."""
    return min(MAX_PANELS, max(1, width // MIN_PANEL_WIDTH) * max(1, height // MIN_PANEL_HEIGHT))


def stream_rows(
    picture: Picture, shown: list[str], selected: str | None, width: int, height: int
) -> list[Row]:
    """A panel for every request of ``shown``, in that order."""
    if not shown:
        text = " nobody generates text at the moment; space on the Replica screen picks requests"
        return fill([Line(width).row(), Line(width).put(text, "dim").row()], height, width)
    columns, rows = grid(len(shown), width, height)
    panel_height = height // rows
    made: list[Row] = []
    for row in range(rows):
        ids = shown[row * columns : (row + 1) * columns]
        panel_width = (width - (len(ids) - 1) * 2) // max(1, len(ids))
        tall = panel_height if row < rows - 1 else height - panel_height * (rows - 1)
        block: list[Row] = []
        used = 0
        for position, request in enumerate(ids):
            last = position == len(ids) - 1
            own_width = width - used if last else panel_width
            panel = panel_rows(picture, request, own_width, tall, request == selected)
            block = panel if position == 0 else beside(block, panel, used - 2, used + own_width)
            used += own_width + 2
        made += block
    return fill(made, height, width)


def find_request(picture: Picture, request: str) -> tuple[ReplicaPicture | None, RequestRow | None]:
    for replica in picture.replicas.values():
        row = replica.rows.get(request)
        if row is not None:
            return replica, row
    return None, next((row for row in picture.held if row.id == request), None)


def panel_rows(picture: Picture, request: str, width: int, height: int, selected: bool = False) -> list[Row]:
    """A head line with the request's numbers, then the end of its text; what users wrote is marked
    ``content``."""
    stream = picture.streams.get(request)
    rows = [_head(picture, request, stream, width, selected)]
    text_width = max(1, width - 2)
    if stream is None or not stream.text:
        waits = (
            " waiting for its first token" if stream is None or stream.finish_reason is None else " no text"
        )
        rows.append(Line(width).put(waits, "dim").row())
        return fill(rows, height, width)
    wrapped = wrap(stream.text, text_width, height - 1)
    for row in wrapped:
        rows.append(Line(width).put("│", "rule").put_pane(row).row())
    return fill(rows, height, width)


def _head(picture: Picture, request: str, stream: StreamPicture | None, width: int, selected: bool) -> Row:
    replica, row = find_request(picture, request)
    line = Line(width).put("┌", "rule").put("▸" if selected else " ", "accent")
    line.put(safe_identifier(request), "accent" if selected else "strong").put("  ")
    state, role = _state(row, stream)
    line.put(state, role).put("  ")
    if replica is not None:
        line.put(safe_identifier(replica.status.id), "dim").put("  ")
    if row is not None and width >= 50:
        line.put(safe(row.tenant, 12), "dim").put("  ")
    if stream is not None:
        line.put(count(stream.tokens)).put(" tok", "dim")
        if stream.last_itl_s is not None and stream.finish_reason is None:
            line.put("  ITL ", "label").put(milliseconds(stream.last_itl_s)).put("ms", "dim")
        if stream.dropped_chars:
            line.put(safe(f"  {count(stream.dropped_chars)} earlier chars dropped"), "dim")
    elif row is not None:
        line.put(age(row.age_s), "dim")
    line.put(" ")
    if line.left > 12:
        line.to(width - 9, "─", "rule").put(" content ", "dim")
    return line.to(width, "─", "rule").row()


def _state(row: RequestRow | None, stream: StreamPicture | None) -> tuple[SafeText, Role]:
    if stream is not None and stream.finish_reason is not None:
        role: Role = "ok" if stream.finish_reason in ("stop", "length") else "crit"
        return safe(f"finished: {stream.finish_reason}", 24), role
    if row is None:
        return safe("gone"), "dim"
    if row.state == "waiting":
        return safe(f"waiting: {row.waiting_reason or '–'}", 24), "warn"
    return safe(row.phase or row.state), "text"


class StreamSlots:
    """Which requests have a panel. A panel stays with its request; when that has ended and another one runs
    without a panel, the panel goes to the other one, so that nothing moves while it is read."""

    def __init__(self) -> None:
        self._shown: list[str] = []

    def update(self, running: list[str], picked: list[str], room: int) -> list[str]:
        """``running`` in batch order; ``picked`` requests, when there are any, are all that is shown."""
        if picked:
            self._shown = picked[:room]
            return list(self._shown)
        self._shown = self._shown[:room]
        alive = set(running)
        new = [request for request in running if request not in self._shown]
        for index, request in enumerate(self._shown):
            if request not in alive and new:
                self._shown[index] = new.pop(0)
        while new and len(self._shown) < room:
            self._shown.append(new.pop(0))
        return list(self._shown)
