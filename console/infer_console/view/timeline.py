"""What happened to one request, moment by moment."""

import textwrap
from typing import NamedTuple

from infer_engine.protocol import Event, RequestRow, Timeline, TimelineEntry, TimelineKind, TtftSplit

from infer_console.actions.cancel import find_request
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, join_text, safe, safe_identifier
from infer_console.view.format import UNKNOWN, age, clock_in_lists, count, milliseconds, seconds
from infer_console.view.kv_unit import kv_unit
from infer_console.view.layout import rule, window
from infer_console.view.life import life_rows
from infer_console.view.look import Look
from infer_console.view.requests import why_cell
from infer_console.view.row import Line, Role, Row
from infer_console.view.ttft_bar import bar_row, legend_row, parts_of, split_row

#: A pace is not reckoned from less.
LEAST_FOR_PACE_S = 0.5
#: Characters of why there is no timeline, and rows that they take.
MOST_WORDS, MOST_ROWS = 600, 6

_ROLES: dict[TimelineKind, Role] = {
    "admitted": "admit",
    "resumed": "admit",
    "preempted": "preempt",
    "moved": "move",
    "finished": "finish",
    "first_token": "ok",
    "first_byte": "ok",
    "held": "warn",
}
_FROM_EVENTS: dict[str, TimelineKind] = {
    "admit": "admitted",
    "preempt": "preempted",
    "move": "moved",
    "finish": "finished",
}


class Told(NamedTuple):
    """A timeline, and whether the server's or put together from the events."""

    timeline: Timeline
    is_servers: bool


def told(picture: Picture, request: str) -> Told | None:
    """None where nothing is known of the request."""
    known = picture.timeline
    if known is not None and known.request == request and known.timeline is not None:
        return Told(known.timeline, True)
    events = [event for event in picture.events if event.request == request and event.kind in _FROM_EVENTS]
    if not events:
        return None
    began_at = events[0].at
    entries = [_entry(event, began_at) for event in events]
    return Told(
        Timeline(request=request, began_at=began_at, entries=entries, ttft_split_s=TtftSplit()), False
    )


def _entry(event: Event, began_at: float) -> TimelineEntry:
    homeless = event.kind == "move" and event.to_replica is None
    return TimelineEntry(
        kind="held" if homeless else _FROM_EVENTS[event.kind],
        at_s=event.at - began_at,
        replica=event.to_replica or event.replica,
        reason=event.reason,
        tokens=event.tokens,
        blocks=event.blocks,
    )


def clock_pace(picture: Picture, timeline: Timeline | None) -> float:
    """Seconds of a request's clock in a second of the wall's: not one where time is simulated. What it was
    during this timeline, where that tells; else what it was lately."""
    simulation = picture.fleet.simulation if picture.fleet is not None else None
    if simulation is None or simulation.speed <= 0:
        return 1.0
    if timeline is not None and timeline.last_at is not None and timeline.entries:
        real_s, its_s = timeline.last_at - timeline.began_at, timeline.entries[-1].at_s
        if real_s >= LEAST_FOR_PACE_S and its_s > 0:
            return its_s / real_s
    return simulation.achieved_speed or simulation.speed


def entry_ids(picture: Picture, request: str) -> list[str]:
    """What the cursor moves over."""
    known = told(picture, request)
    return [str(number) for number in range(len(known.timeline.entries))] if known is not None else []


def timeline_section(picture: Picture, look: Look, request: str, width: int, height: int) -> list[Row]:
    """Title, the request's numbers, its TTFT as a bar, its life as a bar, and the entries: the newest ones,
    or those around the cursor once it was moved."""
    known = told(picture, request)
    row = find_request(picture, request)
    rows = [_title(picture, request, row, width)]
    if row is not None:
        rows += _numbers(picture, row, width)
    if known is None:
        return [*rows, *_told_whole(_nothing(picture, request), width)][:height]
    timeline = known.timeline
    pace = clock_pace(picture, timeline) if known.is_servers else 1.0
    now_s = max(0.0, picture.at - timeline.began_at) * pace
    if known.is_servers:
        parts = parts_of(timeline, now_s)
        if parts.total_s > 0:
            rows += [split_row(parts, width), bar_row(parts, width)]
            if height >= 20:
                rows.append(legend_row(parts, width))
    rows += life_rows(timeline, now_s, width, legend=height >= 20)
    if not known.is_servers:
        rows += _told_whole(f"from the events{_why_not(picture, request)}", width)
    return [*rows, *_entries(look, timeline, pace, width, max(0, height - len(rows)))][:height]


def _title(picture: Picture, request: str, row: RequestRow | None, width: int) -> Row:
    known = picture.timeline
    fresh = known.at if known is not None and known.request == request else None
    note = safe("")
    if known is not None and known.message and known.timeline is not None:
        note = safe(f"not followed any more: {known.message}", max(8, width // 2))
    elif fresh is not None:
        note = safe(f"as of {clock_in_lists(fresh)}")
    whose = "" if row is None else f"{safe(row.tenant, 24)}, {row.tier}{', test' if row.synthetic else ''}"
    title = safe(f"TIMELINE {safe_identifier(request)}")
    return rule(width, title, safe(whose) if whose else None, note, focused=True)


def _numbers(picture: Picture, row: RequestRow, width: int) -> list[Row]:
    line = Line(width).put(" ")
    ended = row.state == "finished"
    phase = row.phase or row.state if not ended else f"ended: {row.finish_reason or '–'}"
    line.put(safe(phase), "warn" if row.state == "waiting" else "strong")
    line.put(" on ", "dim").put(safe_identifier(row.replica) if row.replica else "no replica", "strong")
    line.put("  for ", "label").put(age(row.age_s))
    line.put("  prompt ", "label").put(count(row.prompt_tokens))
    if row.cached_tokens:
        line.put(" cached ", "dim").put(count(row.cached_tokens))
    most = count(row.max_tokens) if row.max_tokens is not None else UNKNOWN
    line.put("  generated ", "label").put(count(row.generated_tokens)).put("/", "dim").put(most)
    if not ended:
        replica = picture.replicas.get(row.replica or "")
        tokens = replica is not None and kv_unit(replica.status.kv) == "tok"
        line.put("  KV tokens " if tokens else "  blocks ", "label").put(count(row.kv_blocks))
    line.put("  ITL ", "label").put(milliseconds(row.last_itl_s))
    line.put("ms" if row.last_itl_s is not None else "", "dim")
    rows = [line.row()]
    why, role = why_cell(row)
    if why:
        lead = " waits: " if row.state == "waiting" else " "
        rows.append(Line(width).put(lead, "label").put(why, role).row())
    return rows


def _why_not(picture: Picture, request: str) -> str:
    """Why the server's own timeline is not shown; its words in it are not yet safe to print."""
    known = picture.timeline
    if known is None or known.request != request:
        return "; the server's own timeline is not here"
    return f": {known.message}" if known.message else "; the server's own timeline is on its way"


def _nothing(picture: Picture, request: str) -> str:
    known = picture.timeline
    if known is not None and known.request == request and known.message:
        return known.message
    return "the timeline is on its way"


def _told_whole(words: str, width: int) -> list[Row]:
    """Over as many rows as it takes: there may be a command at its end, which is to be copied."""
    pieces = textwrap.wrap(safe(words, MOST_WORDS), max(8, width - 2), break_on_hyphens=False)
    return [Line(width).put(" ").put(safe(piece), "warn").row() for piece in pieces[:MOST_ROWS]]


def _entries(look: Look, timeline: Timeline, pace: float, width: int, height: int) -> list[Row]:
    if height < 2:
        return []
    entries = timeline.entries
    cursor = look.cursor("requests", "timeline")
    ids = [str(number) for number in range(len(entries))]
    cursor.follow(ids)
    head = Line(width).put(" TIME      ", "label").put("        AT s", "label").put("   +s", "label")
    rows = [head.put("  WHAT         ", "label").put("ON    TOKENS  BLOCKS  WHY", "label").row()]
    room = height - 1
    at = cursor.index if cursor.moved else len(entries) - 1
    shown = window(len(entries), room if len(entries) <= room else max(1, room - 1), at)
    for number in shown:
        selected = cursor.moved and cursor.id == str(number)
        rows.append(_entry_row(timeline, number, pace, width, selected))
    if len(shown) < len(entries):
        words = f" … {shown.start} before, {len(entries) - shown.stop} after; j and k move"
        rows.append(Line(width).put(safe(words), "dim").row())
    return rows[:height]


def _entry_row(timeline: Timeline, number: int, pace: float, width: int, selected: bool) -> Row:
    entry = timeline.entries[number]
    step_s = entry.at_s - timeline.entries[number - 1].at_s if number else None
    line = Line(width, "cursor" if selected else "plain").put("▸" if selected else " ", "accent")
    line.put(clock_in_lists(timeline.began_at + entry.at_s / pace), "dim").to(11)
    at = safe(f"{entry.at_s:,.3f}")
    line.to(23 - len(at)).put(at)
    step = seconds(step_s) if step_s is not None else safe("")
    line.to(28 - len(step)).put(step, "warn" if step_s is not None and step_s >= 1 else "dim")
    line.put("  ").put(safe(entry.kind.replace("_", " "), 13), _ROLES.get(entry.kind, "text")).to(43)
    line.put(safe_identifier(entry.replica) if entry.replica is not None else "").to(47)
    tokens = count(entry.tokens) if entry.tokens is not None else safe("")
    blocks = count(entry.blocks) if entry.blocks is not None else safe("")
    line.to(55 - len(tokens)).put(tokens).to(63 - len(blocks)).put(blocks).put("  ")
    return line.put(_why(timeline, number), "text").row()


def _why(timeline: Timeline, number: int) -> SafeText:
    entry = timeline.entries[number]
    parts = [safe(entry.reason or "", 120)]
    if entry.omitted:
        parts.append(safe(f"{count(entry.omitted)} chunks before it not shown"))
    if timeline.omitted and number == timeline.omitted_after:
        parts.append(safe(f"{count(timeline.omitted)} entries before it not kept"))
    return join_text(", ", [part for part in parts if part])
