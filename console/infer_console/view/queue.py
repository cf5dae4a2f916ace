"""The queue in admission order: who waits, why, and what it takes to let them in."""

from infer_engine.protocol import RequestRow

from infer_console.state.picture import ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.format import age, count
from infer_console.view.layout import rule, window
from infer_console.view.look import Look
from infer_console.view.order import queue, unfiltered
from infer_console.view.row import Line, Role, Row


def fits_now(row: RequestRow) -> bool | None:
    """Whether the blocks it needs are admissible at this moment."""
    if row.needs_blocks is None or row.admissible_blocks is None:
        return None
    return row.needs_blocks <= row.admissible_blocks


def queue_section(replica: ReplicaPicture, look: Look, width: int, height: int) -> list[Row]:
    if height <= 0:
        return []
    waiting = queue(replica, look)
    cursor = look.cursor("replica", "queue")
    every = queue(replica, unfiltered(look)) if look.filter else waiting
    cursor.follow([row.id for _, row in waiting], [row.id for _, row in every])
    focused = look.pane("replica") == "queue"
    known = replica.status.waiting
    total = count(known if known is not None else len(waiting))
    rows = [rule(width, "QUEUE", total, "in admission order" if width >= 60 else "", focused)]
    # A replica lists the first of a long queue; of the rest only the number is known.
    unlisted = max(0, known - len(every)) if known is not None and not look.filter and every else 0
    rest = unlisted > 0 or len(waiting) > height - 1
    shown = window(len(waiting), max(1, height - 2) if rest else height - 1, cursor.index if focused else 0)
    for index in shown:
        place, row = waiting[index]
        first = index == shown.start
        fits = fits_when(replica, row) if first and width >= 100 else safe("")
        rows.append(queue_row(place, row, width, row.id == cursor.id, focused, fits))
    if rest:
        rows.append(_rest_row(waiting, shown, unlisted, width))
    elif not waiting:
        text = safe(f" {nobody_waits(replica)}")
        rows.append(Line(width).put(" nobody matches the filter" if look.filter else text, "dim").row())
    return rows[:height]


def nobody_waits(replica: ReplicaPicture) -> SafeText:
    """Why nobody is named who waits."""
    foreign, waiting = replica.status.foreign, replica.status.waiting
    if foreign is not None and waiting != 0:
        return safe(f"{safe(foreign, 24)} does not tell who waits")
    return safe("the queue is not known yet" if waiting else "nobody waits")


def fits_when(replica: ReplicaPicture, row: RequestRow) -> SafeText:
    """Which of the running requests has to end first so that this one fits, if none ends before its limit: an
    estimate from what each may still generate and its last ITL."""
    if row.waiting_reason not in ("kv", "headroom") or fits_now(row) is not False:
        return safe("")
    short = (row.needs_blocks or 0) - (row.admissible_blocks or 0)
    ends: list[tuple[float, int, str]] = []
    for other in replica.rows.values():
        if other.state == "running" and other.max_tokens is not None and other.last_itl_s is not None:
            left = max(0, other.max_tokens - other.generated_tokens)
            ends.append((left * other.last_itl_s, other.kv_blocks, other.id))
    for ends_in_s, blocks, id in sorted(ends):
        short -= blocks
        if short <= 0:
            return safe(f"fits when {safe_identifier(id)} ends, ≤{age(ends_in_s)}")
    return safe("")


def queue_row(
    place: int,
    row: RequestRow,
    width: int,
    selected: bool,
    focused: bool,
    fits_later: SafeText | None = None,
) -> Row:
    wide = width >= 100
    line = Line(width, "cursor" if selected and focused else "plain")
    line.put("▸" if selected and focused else " ", "accent")
    number = safe(str(place))
    line.to(4 - len(number)).put(number, "dim").put(" ")
    line.put(safe_identifier(row.id), "strong").to(line.used + 1)
    line.to(16)
    if wide:
        line.put(safe(row.tenant, 10)).to(27).put(safe("int" if row.tier == "interactive" else "bat"))
        line.put("°" if row.synthetic else " ", "dim").to(32)
    waited = age(row.queue_wait_s if row.queue_wait_s is not None else row.age_s)
    line.to(line.used + max(0, 6 - len(waited))).put(waited, "warn").put("  ")
    tokens = safe(f"{count(row.prompt_tokens + row.generated_tokens)} tok")
    line.to(line.used + max(0, 11 - len(tokens))).put(tokens).put("  ")
    if row.needs_blocks is not None:
        needs = safe(f"{count(row.needs_blocks)} blk")
        line.to(line.used + max(0, 9 - len(needs))).put(needs).put("  ")
    fits = fits_now(row)
    if wide and fits is not None:
        line.put("fits ", "dim").put("YES" if fits else "no ", "ok" if fits else "warn").put("  ")
    line.put(reason_word(row), reason_role(row)).put("  ")
    line.put(_explanation(row), "dim")
    if fits_later:
        line.put("; " if _explanation(row) else "", "dim").put(fits_later, "dim")
    return line.row()


def reason_word(row: RequestRow) -> SafeText:
    """No step has looked at a request without a reason yet."""
    return safe(row.waiting_reason or "just arrived", 14)


def reason_role(row: RequestRow) -> Role:
    return "text" if row.waiting_reason in ("behind", None) else "warn"


def _explanation(row: RequestRow) -> SafeText:
    if row.behind is not None:
        return safe_identifier(row.behind)
    parts: list[str] = []
    if (
        row.needs_blocks is not None
        and row.admissible_blocks is not None
        and row.waiting_reason in ("kv", "headroom")
    ):
        short = row.needs_blocks - row.admissible_blocks
        if short > 0:
            parts.append(f"short {count(short)}")
    if row.preemptions:
        parts.append(f"preempted {row.preemptions}×, {count(row.generated_tokens)} tok generated")
    return safe("; ".join(parts))


def _rest_row(waiting: list[tuple[int, RequestRow]], shown: range, unlisted: int, width: int) -> Row:
    """Counts what is not shown, by reason where it is listed."""
    hidden = [row for index, (_, row) in enumerate(waiting) if index not in shown]
    tally: dict[str, int] = {}
    for row in hidden:
        reason = reason_word(row)
        tally[reason] = tally.get(reason, 0) + 1
    told = ", ".join(
        f"{name} {number}" for name, number in sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    )
    if unlisted:
        told += f"{', ' if told else ''}not listed {count(unlisted)}"
    return Line(width).put(safe(f"   … {count(len(hidden) + unlisted)} more: {told}"), "dim").row()
