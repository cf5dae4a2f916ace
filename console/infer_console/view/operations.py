"""Operations under way and lately ended. They are the server's: they outlive the console that asked for
them, unless that runs the server itself."""

from infer_engine.protocol import Operation

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, join_text, safe, safe_identifier
from infer_console.view.format import age, clock_in_lists
from infer_console.view.gauge import progress
from infer_console.view.layout import rule
from infer_console.view.row import Line, Role, Row

#: How long an ended operation stays on the screen.
LINGER_S = 120.0
_PHASE_ROLES: dict[str, Role] = {"succeeded": "ok", "failed": "crit", "cancelled": "warn", "unknown": "warn"}


def shown_operations(picture: Picture, now: float) -> list[Operation]:
    """Those under way, newest first, then those that ended lately."""
    under_way = [operation for operation in picture.operations if operation.phase in ("pending", "running")]
    ended = [
        operation
        for operation in picture.operations
        if operation.phase not in ("pending", "running") and now - (operation.ended_at or 0.0) < LINGER_S
    ]
    return sorted(under_way, key=lambda op: _newest(op, op.started_at), reverse=True) + sorted(
        ended, key=lambda op: _newest(op, op.ended_at or 0.0), reverse=True
    )


def _newest(operation: Operation, at: float) -> tuple[float, int, str]:
    """Ids of one moment count up (op-9, op-10)."""
    return at, len(operation.id), operation.id


def eta_s(operation: Operation, now: float) -> float | None:
    """How long it will still take if it goes on as it did until now; None where that cannot be told."""
    done, total = operation.done, operation.total
    if operation.kind == "inject":  # it counts what was sent, and ends by the clock
        return None
    if operation.phase != "running" or not done or total is None or done >= total:
        return None
    return max(0.0, now - operation.started_at) / done * (total - done)


def operation_section(
    picture: Picture, width: int, height: int, now: float, titled: bool = True
) -> list[Row]:
    """Nothing where there is no operation."""
    operations = shown_operations(picture, now)
    if height <= 0 or not operations:
        return []
    rows = (
        [
            rule(
                width,
                "OPERATIONS",
                None,
                "they end with this console" if picture.embedded else "they outlive this console",
            )
        ]
        if titled
        else []
    )
    return [*rows, *(operation_row(operation, width, now) for operation in operations[: height - len(rows)])]


def operation_row(operation: Operation, width: int, now: float) -> Row:
    wide = width >= 100
    line = Line(width).put(" ").put(safe_identifier(operation.id), "dim").put(" ")
    line.put(safe(operation.kind, 12), "strong").put(" ").put(safe(operation.target, 40), "strong").put(" ")
    mode = operation.params.get("mode")
    if isinstance(mode, str):
        line.put(safe(mode, 10)).put(" ")
    if wide:
        if operation.actor:
            line.put(safe(operation.actor, 16), "dim").put("  ")
        line.put(clock_in_lists(operation.started_at), "dim").put("  ")
    if operation.done is not None and operation.total:
        line.put_spans(progress(operation.done, operation.total, 20 if wide else 10))
        line.put(safe(f" {operation.done}/{operation.total}")).put("  ")
        left_s = eta_s(operation, now)
        if left_s is not None:
            line.put(safe(f"~{age(left_s)} left"), "accent").put("  ")
    if operation.phase not in ("pending", "running"):
        took = age((operation.ended_at or now) - operation.started_at)
        line.put(safe(operation.phase), _PHASE_ROLES.get(operation.phase, "text")).put(
            safe(f" in {took}  "), "dim"
        )
    elif operation.deadline_at is not None:
        _put_end(line, operation, operation.deadline_at - now)
    return line.put(_explanation(operation), "text").row()


def _put_end(line: Line, operation: Operation, left_s: float) -> None:
    """Test traffic ends by the clock; of all others it is the latest."""
    ends = operation.kind == "inject"
    if left_s > 0:
        line.put("ends in " if ends else "deadline in ", "dim").put(age(left_s)).put("  ")
    else:
        line.put("its time is over  " if ends else "past its deadline  ", "dim")


def _explanation(operation: Operation) -> SafeText:
    parts = [safe(operation.message)] if operation.message else []
    if operation.blocked_by and operation.phase in ("pending", "running"):
        more = len(operation.blocked_by) - 1
        first = safe(operation.blocked_by[0], 40)
        parts.append(safe(f"waits for {first}{f' and {more} more' if more > 0 else ''}"))
    return join_text("; ", parts)
