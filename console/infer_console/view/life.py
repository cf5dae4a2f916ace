"""A request's life as one bar: when it waited, prefilled and decoded, and what came in between."""

from collections.abc import Sequence
from typing import NamedTuple

from infer_engine.protocol import Timeline, TimelineEntry

from infer_console.terminal.safe_text import safe
from infer_console.view.format import age
from infer_console.view.row import Line, Role, Row, Shown

#: What it does, as it is drawn.
STAGES: dict[str, tuple[Shown, Role]] = {
    "gateway": ("░", "label"),
    "waits": ("·", "warn"),
    "prefills": ("▒", "used"),
    "decodes": ("█", "ok"),
}
_BEGINS = {
    "arrived": "gateway",
    "held": "waits",
    "routed": "waits",
    "moved": "waits",
    "preempted": "waits",
    "first_token": "decodes",
}
_MARKS: dict[str, tuple[Shown, Role]] = {
    "first_token": ("1", "ok"),
    "preempted": ("P", "preempt"),
    "moved": ("M", "move"),
    "finished": ("F", "finish"),
}


class Stage(NamedTuple):
    name: str
    from_s: float
    to_s: float


def stages(timeline: Timeline, now_s: float) -> list[Stage]:
    """Back to back from its arrival until it ended, or until now, which is ``now_s`` after the timeline
    began."""
    found: list[Stage] = []
    name, from_s, end_s = "gateway", 0.0, now_s
    for number, entry in enumerate(timeline.entries):
        if entry.kind == "finished":
            end_s = entry.at_s
            break
        begins = _BEGINS.get(entry.kind) or _computed(timeline.entries, number)
        if begins is not None and begins != name:
            found.append(Stage(name, from_s, entry.at_s))
            name, from_s = begins, entry.at_s
    return [*found, Stage(name, from_s, max(from_s, end_s))]


def _computed(entries: Sequence[TimelineEntry], number: int) -> str | None:
    """A sequence that was swapped in decodes at once; one that computes again what it lost decodes after the
    last chunk of that."""
    before = entries[:number]
    if not any(entry.kind == "first_token" for entry in before):
        return "prefills" if entries[number].kind in ("admitted", "resumed") else None
    if entries[number].kind in ("admitted", "resumed"):
        left = next((entry for entry in reversed(before) if entry.kind in ("preempted", "moved")), None)
        return "decodes" if left is not None and left.reason == "swap" else "prefills"
    if entries[number].kind == "prefill":
        is_last = number + 1 == len(entries) or entries[number + 1].kind != "prefill"
        return "decodes" if is_last else None
    return None


def life_rows(timeline: Timeline, now_s: float, width: int, *, legend: bool) -> list[Row]:
    """The bar, what happened under it, and (``legend``) what the signs mean."""
    found = stages(timeline, now_s)
    whole_s = found[-1].to_s
    cells = width - 10
    if whole_s <= 0 or cells < 20:
        return []
    line = Line(width).put(" LIFE ", "label")
    for cell in range(cells):
        at_s = (cell + 0.5) / cells * whole_s
        stage = next((each for each in found if each.from_s <= at_s < each.to_s), found[-1])
        glyph, role = STAGES[stage.name]
        line.put(glyph, role)
    rows = [line.row(), _marks(timeline, whole_s, cells, width)]
    if legend:
        rows.append(_legend(width))
    return rows


def _marks(timeline: Timeline, whole_s: float, cells: int, width: int) -> Row:
    at = {}
    for entry in timeline.entries:
        mark = _MARKS.get(entry.kind)
        if mark is not None:
            at[min(cells - 1, int(entry.at_s / whole_s * cells))] = mark
    line = Line(width)
    for cell in sorted(at):
        line.to(6 + cell).put(*at[cell])
    return line.right(safe(f"{age(whole_s)} "), "dim").row()


def _legend(width: int) -> Row:
    line = Line(width).put("      ")
    for name, (glyph, role) in STAGES.items():
        line.put(glyph, role).put(" ").put(safe(name), "dim").put("  ")
    line.put("1", "ok").put(" first token  ", "dim").put("P", "preempt").put(" preempted  ", "dim")
    return line.put("M", "move").put(" moved  ", "dim").put("F", "finish").put(" finished", "dim").row()
