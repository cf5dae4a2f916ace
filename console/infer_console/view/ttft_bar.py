"""Where the time to the first byte went: each part by its name, and all of them as one bar."""

from typing import NamedTuple

from infer_engine.protocol import Timeline, TtftSplit

from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, seconds
from infer_console.view.row import Line, Role, Row, Shown

PARTS = ("gateway", "tokenize", "queue", "prefill", "send")
#: Letter and colour of each part: the letter is what tells them apart.
MARKS: dict[str, tuple[Shown, Role]] = {
    "gateway": ("g", "label"),
    "tokenize": ("t", "accent"),
    "queue": ("Q", "warn"),
    "prefill": ("p", "used"),
    "send": ("s", "label"),
}


class Parts(NamedTuple):
    """Seconds; None where a part is not known. ``over`` is False where the first token is still waited
    for."""

    gateway: float | None
    tokenize: float | None
    queue: float | None
    prefill: float | None
    send: float | None
    over: bool

    @property
    def total_s(self) -> float:
        return sum(value or 0.0 for value in self[:5])

    @property
    def largest(self) -> str | None:
        known = {part: value for part, value in zip(PARTS, self, strict=False) if value}
        return max(known, key=lambda part: known[part], default=None)


def parts_of(timeline: Timeline, now_s: float) -> Parts:
    """As the server measured them; of a request that waits for its first byte, as far as it is by now, which
    is ``now_s`` after the timeline began."""
    split = timeline.ttft_split_s
    if split.queue is not None and split.prefill is not None:
        return Parts(split.gateway, split.tokenize, split.queue, split.prefill, split.send, True)
    return _so_far(timeline, split, now_s)


def _so_far(timeline: Timeline, split: TtftSplit, now_s: float) -> Parts:
    """Waiting and prefill go by turns: the time since the last entry that changed that belongs to what it
    does now."""
    queue_s = prefill_s = 0.0
    since_s, waits = None, True
    is_over = False
    for entry in timeline.entries:
        if entry.kind in ("held", "routed", "moved", "queued", "preempted") and since_s is None:
            since_s = entry.at_s
        if entry.kind in ("admitted", "resumed", "preempted", "held", "first_token", "finished"):
            if since_s is not None and waits:
                queue_s += entry.at_s - since_s
            elif since_s is not None:
                prefill_s += entry.at_s - since_s
            since_s, waits = entry.at_s, entry.kind not in ("admitted", "resumed")
            is_over = entry.kind in ("first_token", "finished")
        if is_over:
            break
    if since_s is not None and not is_over:
        if waits:
            queue_s += max(0.0, now_s - since_s)
        else:
            prefill_s += max(0.0, now_s - since_s)
    return Parts(split.gateway, split.tokenize, queue_s, prefill_s, split.send, False)


def split_row(parts: Parts, width: int) -> Row:
    """``TTFT 48.0s = gateway .0 + tokenize .3 + QUEUE 29.7 + prefill 17.9 + send .1``."""
    line = Line(width).put(" TTFT ", "label").put(seconds(parts.total_s), "strong").put("s", "dim")
    line.put(" = " if parts.over else " so far = ", "dim")
    for number, part in enumerate(PARTS):
        line.put(" + " if number else "", "dim")
        largest = part == parts.largest
        line.put(safe(part.upper() if largest else part), "warn" if largest else "label").put(" ")
        value: SafeText = seconds(parts[number]) if parts[number] is not None else UNKNOWN
        line.put(value, "strong" if largest else "text")
    return line.row()


def bar_row(parts: Parts, width: int) -> Row:
    """One bar of all parts, each drawn with its letter; a part that took any time has at least a cell."""
    line = Line(width).put(" ")
    cells = width - 2
    values = [max(0.0, value or 0.0) for value in parts[:5]]
    whole = sum(values)
    if whole <= 0 or cells < 10:
        return line.row()
    widths = [max(1, int(value / whole * cells)) if value > 0 else 0 for value in values]
    widths[values.index(max(values))] += cells - sum(widths)
    for part, cell_count in zip(PARTS, widths, strict=True):
        letter, role = MARKS[part]
        line.put(safe(letter * max(0, cell_count)), role)
    return line.row()


def legend_row(parts: Parts, width: int) -> Row:
    """What the letters of the bar mean: of the parts that it has."""
    line = Line(width).put("      ")
    for part, value in zip(PARTS, parts[:5], strict=True):
        if value:
            letter, role = MARKS[part]
            line.put(letter, role).put(" ").put(safe(part), "dim").put("  ")
    return line.put("of TTFT", "dim").row()
