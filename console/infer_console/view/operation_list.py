"""All operations that are known, and all that is known of one."""

import textwrap

from infer_engine.protocol import Operation

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.box import CLOSES, box, titled
from infer_console.view.format import UNKNOWN, age, clock
from infer_console.view.gauge import progress
from infer_console.view.layout import rule, window
from infer_console.view.look import Look
from infer_console.view.operations import eta_s, operation_row
from infer_console.view.order import follow, operations, under_way
from infer_console.view.row import Line, Role, Row, with_tone

BOX_WIDTH = 90
_LABEL = 12
_PHASES: dict[str, Role] = {
    "succeeded": "ok",
    "failed": "crit",
    "cancelled": "warn",
    "unknown": "warn",
    "running": "accent",
}
#: Rows that a list of names or parameters takes at most.
MOST_ROWS = 6


def operation_list(picture: Picture, look: Look, width: int, height: int, now: float) -> list[Row]:
    """A title and the operations around the cursor, those under way first, then the newest."""
    if height <= 0:
        return []
    shown = operations(picture, look)
    focused = look.pane("events") == "operations"
    cursor = follow(picture, look, "events", "operations", [each.id for each in shown])
    count = sum(under_way(each) for each in picture.operations)
    note = "they end with this console" if picture.embedded else "they outlive this console"
    rows = [rule(width, "OPERATIONS", safe(f"{count} under way"), note, focused)]
    room = height - 1
    at = cursor.index if focused else 0
    for index in window(len(shown), room if len(shown) <= room else max(1, room - 1), at):
        operation = shown[index]
        row = operation_row(operation, width, now)
        rows.append(_selected(row, width) if focused and operation.id == cursor.id else row)
    if len(shown) > room and room > 1:
        more = safe(f" … {len(shown) - room + 1} more; enter tells all of one")
        rows.append(Line(width).put(more, "dim").row())
    elif not shown:
        words = " no operation matches the filter" if look.filter else " nobody did anything yet"
        rows.append(Line(width).put(words, "dim").row())
    return rows[:height]


def _selected(row: Row, width: int) -> Row:
    """The cursor takes the place of the blank before the id."""
    first, *rest = with_tone(row, "cursor")
    kept = first._replace(text=first.text[1:], cells=first.cells - 1)
    return Line(width, "cursor").put("▸", "accent").put_spans((kept, *rest)).row()


def operation_box(picture: Picture, operation: str, width: int, height: int, now: float) -> list[Row]:
    """A framed box with all that is known of one, as it is now."""
    outer = max(24, min(BOX_WIDTH, width - 2))
    inner = outer - 4
    found = next((each for each in picture.operations if each.id == operation), None)
    body = _gone(inner) if found is None else _body(found, inner, now)
    room = max(1, height - 2)
    if len(body) > room:
        body = [*body[: room - 1], Line(inner, "dialog").put("…", "dim").row()]
    return box(titled(outer, "Operation ", safe_identifier(operation)), body, CLOSES)


def _gone(inner: int) -> list[Row]:
    return [Line(inner, "dialog").put("it is not known here any more", "warn").row()]


def _body(operation: Operation, inner: int, now: float) -> list[Row]:
    phase = operation.phase
    rows = [
        _fact(inner, "what", safe(f"{safe(operation.kind, 24)} {safe(operation.target, 64)}"), "strong"),
        _fact(inner, "phase", safe(phase), _PHASES.get(phase, "text")),
        _fact(inner, "by", safe(operation.actor, 64) or UNKNOWN),
        *_words(inner, "reason", operation.reason or "none given"),
        _fact(inner, "began", _moment(operation.started_at, now)),
    ]
    if operation.ended_at is not None:
        took = age(operation.ended_at - operation.started_at)
        rows.append(_fact(inner, "ended", safe(f"{_moment(operation.ended_at, now)}, after {took}")))
    if operation.deadline_at is not None:
        left_s = operation.deadline_at - now
        words = f"{clock(operation.deadline_at)}, {'in' if left_s >= 0 else 'passed'} {age(abs(left_s))}"
        rows.append(_fact(inner, "deadline", safe(words)))
    if operation.total:
        rows.append(_progress(operation, inner, now))
    for name, value in sorted(operation.params.items()):
        rows += _words(inner, "with", f"{name} = {value}")
    if operation.blocked_by:
        rows += _words(inner, "waits for", " ".join(operation.blocked_by))
    if operation.message:
        rows += _words(inner, "says", operation.message)
    return rows


def _moment(at: float, now: float) -> SafeText:
    return safe(f"{clock(at)}, {age(now - at)} ago")


def _progress(operation: Operation, inner: int, now: float) -> Row:
    line = Line(inner, "dialog").put("progress", "label").to(_LABEL)
    done, total = operation.done or 0, operation.total or 0
    bar = progress(done, total, max(8, min(30, inner - 44)))
    line.put_spans(with_tone(bar, "dialog")).put(safe(f" {done}/{total}"))
    left_s = eta_s(operation, now)
    if left_s is not None:
        line.put(safe(f"  ~{age(left_s)} left at this rate"), "accent")
    return line.row()


def _fact(inner: int, label: str, text: SafeText, role: Role = "text") -> Row:
    return Line(inner, "dialog").put(safe(label), "label").to(_LABEL).put(text, role).row()


def _words(inner: int, label: str, text: str) -> list[Row]:
    """Text of others, wrapped and bounded."""
    pieces = textwrap.wrap(safe(text, 1000), max(8, inner - _LABEL)) or [""]
    rows = [_fact(inner, label if number == 0 else "", safe(piece)) for number, piece in enumerate(pieces)]
    if len(rows) > MOST_ROWS:
        more = safe(f"… {len(rows) - MOST_ROWS + 1} rows more")
        return [*rows[: MOST_ROWS - 1], _fact(inner, "", more, "dim")]
    return rows
