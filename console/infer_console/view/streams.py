"""Tokens as they are generated: one or several requests' text side by side."""

from infer_engine.protocol import RequestRow

from infer_console.actions.cancel import find_request
from infer_console.state.picture import Picture, ReplicaPicture, StreamPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.format import age, count, milliseconds
from infer_console.view.gauge import progress
from infer_console.view.layout import fill
from infer_console.view.row import Line, Role, Row, Shown, beside
from infer_console.view.token_flow import shape_rows, stall_s, text_rows

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
    picture: Picture, shown: list[str], selected: str | None, width: int, height: int, revealed: bool = False
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
            panel = panel_rows(picture, request, own_width, tall, request == selected, revealed)
            block = panel if position == 0 else beside(block, panel, used - 2, used + own_width)
            used += own_width + 2
        made += block
    return fill(made, height, width)


def find_replica(picture: Picture, row: RequestRow | None) -> ReplicaPicture | None:
    """The replica that has it."""
    return picture.replicas.get(row.replica or "") if row is not None else None


def panel_rows(
    picture: Picture, request: str, width: int, height: int, selected: bool = False, revealed: bool = False
) -> list[Row]:
    """A head line with the request's numbers, then its latest tokens: their text where it is ``revealed``,
    else one sign for each. What users wrote is marked ``content``."""
    stream = picture.streams.get(request)
    row = find_request(picture, request)
    rows = [_head(picture, request, row, stream, width, selected, revealed)]
    inner = max(1, width - 1)
    prefill = _prefill(row, width)
    if prefill is not None:
        rows.append(prefill)
    late = _late(picture, row, stream, width)
    room = height - len(rows) - (1 if late is not None else 0)
    if stream is None or not stream.tokens:
        if prefill is None:
            rows.append(Line(width).put(_no_token(row, stream), "dim").row())
    elif revealed:
        rows += _framed(text_rows(picture, stream, inner, room), width)
    else:
        rows += _framed(shape_rows(picture, stream, inner, room), width)
    if late is not None:
        rows.append(late)
    return fill(rows, height, width)


def _framed(rows: list[Row], width: int) -> list[Row]:
    return [Line(width).put("│", "rule").put_spans(row).row() for row in rows]


def _no_token(row: RequestRow | None, stream: StreamPicture | None) -> Shown:
    if stream is not None and stream.finish_reason is not None:
        return " no token"
    if row is not None and row.state == "finished":
        return " it has ended; its tokens are not told any more"
    # What it generated before anybody looked is not here yet; that is no wait of the request's.
    if row is not None and (row.phase == "decode" or (row.state == "running" and row.generated_tokens)):
        return " its tokens are being fetched"
    return " waiting for its first token"


def _prefill(row: RequestRow | None, width: int) -> Row | None:
    """How far the prompt is computed; None where it is, or is not begun."""
    if row is None or row.phase != "prefill":
        return None
    whole = row.prompt_tokens + row.generated_tokens
    line = Line(width).put("│", "rule").put("prefill ", "accent")
    line.put_spans(progress(row.computed_tokens, max(1, whole), max(4, min(24, width - 34))))
    return line.put(safe(f" {count(row.computed_tokens)}/{count(whole)} tok"), "dim").row()


def _late(picture: Picture, row: RequestRow | None, stream: StreamPicture | None, width: int) -> Row | None:
    """For how long no token has come, where that is long for this stream; and why, where it waits."""
    if stream is None or stream.finish_reason is not None or stream.heard_at is None or not stream.tokens:
        return None
    silent_s = picture.at - stream.heard_at
    if silent_s < max(1.0, stall_s(stream)):
        return None
    line = Line(width).put("│", "rule").put("█ no token for ", "crit").put(age(silent_s), "crit")
    if row is not None and row.state == "waiting":
        line.put(": waits, ", "warn").put(safe(row.waiting_reason or "just arrived", 14), "warn")
    return line.row()


def _head(
    picture: Picture,
    request: str,
    row: RequestRow | None,
    stream: StreamPicture | None,
    width: int,
    selected: bool,
    revealed: bool,
) -> Row:
    replica = find_replica(picture, row)
    line = Line(width).put("┌", "rule").put("▸" if selected else " ", "accent")
    line.put(safe_identifier(request), "accent" if selected else "strong").put("  ")
    state, role = _state(row, stream)
    line.put(state, role).put("  ")
    if replica is not None:
        line.put(safe_identifier(replica.status.id), "dim").put("  ")
    if row is not None and width >= 50:
        line.put(safe(row.tenant, 12), "dim").put("  ")
    if stream is not None and stream.tokens:
        line.put(count(stream.tokens)).put(" tok", "dim")
        itl = safe(f"{milliseconds(stream.last_itl_s)}ms")
        if stream.last_itl_s is not None and stream.finish_reason is None and line.left >= len(itl) + 6:
            line.put("  ITL ", "label").put(milliseconds(stream.last_itl_s)).put("ms", "dim")
        if revealed and stream.dropped_chars:
            line.put(safe(f"  {count(stream.dropped_chars)} earlier chars dropped"), "dim")
    elif row is not None:
        line.put(age(row.age_s), "dim")
    line.put(" ")
    if revealed and line.left > 12:
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
