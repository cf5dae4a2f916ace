"""Who waits longest, by name."""

from infer_engine.protocol import RequestRow

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.format import age, count
from infer_console.view.listing import live_rows
from infer_console.view.queue import reason_word
from infer_console.view.row import Line, Row

#: A reason at its longest.
_WHY_CELLS = 16


def waiters(picture: Picture) -> list[RequestRow]:
    """The longest first: those that the server named, of the past those of the rosters that are known."""
    known = picture.demand.waiting if picture.demand is not None else live_rows(picture)
    return sorted((row for row in known if row.state == "waiting"), key=lambda row: (-_waited_s(row), row.id))


def _waited_s(row: RequestRow) -> float:
    return row.queue_wait_s if row.queue_wait_s is not None else row.age_s


def waiter_words(row: RequestRow, room: int) -> SafeText:
    """``7f3b02 acme 47s r2, short 6,016 blk``, as much of it as there is room for."""
    tenant = safe(row.tenant, 12)
    words = f"{safe_identifier(row.id)} {tenant}{'°' if row.synthetic else ''} {age(_waited_s(row))}"
    for more in (_where(row), _lacks(row)):
        if more and len(words) + len(more) <= room:
            words += more
    return safe(words, max(0, room))


def _where(row: RequestRow) -> str:
    return f" {safe_identifier(row.replica)}" if row.replica is not None else ""


def _lacks(row: RequestRow) -> str:
    """What keeps it out, in numbers."""
    if row.behind is not None:
        return f", behind {safe_identifier(row.behind)}"
    if row.needs_blocks is None:
        return f", {count(row.prompt_tokens)} tok"
    short = row.needs_blocks - (row.admissible_blocks or 0)
    if row.admissible_blocks is not None and short > 0:
        return f", short {count(short)} of {count(row.needs_blocks)} blk"
    return f", needs {count(row.needs_blocks)} blk"


def waiter_row(row: RequestRow, width: int) -> Row:
    """One more that waits, with why."""
    line = Line(width).put(" ").put(reason_word(row), "dim").to(_WHY_CELLS)
    return line.put(waiter_words(row, line.left)).row()
