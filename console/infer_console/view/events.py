"""The live feed: every kind its own word."""

from collections.abc import Callable

from infer_engine.protocol import Event

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, join_text, safe, safe_identifier
from infer_console.view.format import UNKNOWN, age, clock, clock_in_lists, count, short_count
from infer_console.view.layout import rule, window
from infer_console.view.look import Look, ScreenName
from infer_console.view.order import event_id, events, unfiltered
from infer_console.view.row import Line, Role, Row, Shown

WORDS: dict[str, tuple[Shown, Role]] = {
    "admit": ("ADMIT", "admit"),
    "finish": ("FINISH", "finish"),
    "preempt": ("PREEMPT", "preempt"),
    "cache_evict": ("EVICT", "evict"),
    "move": ("MOVE", "move"),
    "reject": ("REJECT", "reject"),
    "replica": ("REPLICA", "notice"),
    "operation": ("OP", "notice"),
    "traffic": ("TRAFFIC", "notice"),
}


def event_rows(
    picture: Picture,
    look: Look,
    screen: ScreenName,
    width: int,
    height: int,
    replica: str | None = None,
    titled: bool = True,
) -> list[Row]:
    """A title and the newest events, or those around the cursor while the pane has the focus. Where room is
    short the title goes, unless the pane has the focus."""
    if height <= 0:
        return []
    shown = events(picture, look, replica)
    focused = look.pane(screen) == "events"
    note = _note(look, width)
    title = safe(f"EVENTS {safe_identifier(replica)}") if replica is not None else "EVENTS"
    rows = [rule(width, title, None, note, focused)] if titled or focused else []
    cursor = look.cursor(screen, "events")
    ids = [event_id(event) for event in shown]
    every = events(picture, unfiltered(look), replica) if look.filter else shown
    cursor.follow(ids, [event_id(event) for event in every])
    start_at = cursor.index if focused and cursor.moved else 0
    for index in window(len(shown), height - len(rows), start_at):
        event = shown[index]
        selected = focused and event_id(event) == cursor.id
        rows.append(event_row(event, width, with_replica=replica is None, selected=selected))
    if not shown:
        hidden = look.filter or look.hidden_kinds
        words = " no event matches the filter" if hidden else " nothing happened yet"
        rows.append(Line(width).put(words, "dim").row())
    return rows[:height]


def _note(look: Look, width: int) -> SafeText:
    if width < 60:
        return safe("")
    kinds = [WORDS[kind][0] for kind in WORDS if kind in look.hidden_kinds]
    parts = [f"not {', '.join(kinds)}"] if kinds else []
    if look.filter:
        parts.append(f"filter: {safe(look.filter)}")
    return safe("  ".join([*parts, "newest first"]), max(12, width // 2))


def lost_row(picture: Picture, width: int) -> Row | None:
    """What is not here any more, or never was: a console keeps a bounded number of events, and begins with
    the latest ones. None where nothing is missing: a server numbers its events from 1 on."""
    oldest = next((event for event in picture.events if event.seq), None)
    if oldest is None or oldest.seq <= 1:
        return None
    text = f" {count(oldest.seq - 1)} earlier ones are not kept here; these begin {clock(oldest.at)}"
    line = Line(width).put(safe(text), "dim")
    return line.right("infer-console events --limit N has more ", "dim").row()


#: What this console saw of its own link; a server tells of replicas with a name.
_LINK: dict[str, tuple[Shown, Role]] = {"link lost": ("LINK", "crit"), "link back": ("LINK", "ok")}


def _word(event: Event) -> tuple[Shown, Role]:
    if event.kind == "replica" and event.replica is None and event.reason in _LINK:
        return _LINK[event.reason]
    if _is_back(event):
        return "RESUME", WORDS["move"][1]
    return WORDS.get(event.kind, (safe(event.kind.upper(), 7), "notice"))


def event_row(event: Event, width: int, with_replica: bool = True, selected: bool = False) -> Row:
    word, role = _word(event)
    line = Line(width, "cursor" if selected else "plain").put("▸" if selected else " ", "accent")
    line.put(moment(event.at, width), "dim").put(" ")
    line.put(word, role).to(line.used + 8 - len(word))
    if with_replica:
        line.put(_where(event), "strong").put(" ").to(
            line.used if _has_target(event) else line.used + 3 - len(_where(event))
        )
    if event.request is not None:
        line.put(safe_identifier(event.request), "text").put(" ")
    if event.tenant is not None:
        line.put(safe(event.tenant, 12), "dim").put(" ")
    return line.put(_details(event), "text").row()


def moment(at: float, width: int) -> SafeText:
    """``03:11:25``; beside another pane the hour goes, which the banner has, and a tenth of a second says
    that ``11:25.1`` are minutes."""
    clock = clock_in_lists(at)
    return clock if width >= 60 or clock == UNKNOWN else safe(f"{clock[3:]}.{int(at * 10) % 10}")


def _is_back(event: Event) -> bool:
    """It goes on at the replica that it had lost: of the same name, in its next life."""
    return event.kind == "move" and event.replica is not None and event.to_replica == event.replica


def _has_target(event: Event) -> bool:
    return event.to_replica is not None and event.to_replica != event.replica


def _where(event: Event) -> SafeText:
    if event.replica is None:
        return safe("–")
    if event.to_replica is None or not _has_target(event):
        return safe_identifier(event.replica)
    return safe(f"{safe_identifier(event.replica)}→{safe_identifier(event.to_replica)}")


def _admit(event: Event) -> list[SafeText]:
    waited = safe(f"waited {age(event.wait_s)}") if event.wait_s is not None else safe("")
    return [waited, _blocks(event, "")]


def _finish(event: Event) -> list[SafeText]:
    return [safe(event.reason or ""), _tokens(event, ""), _blocks(event, " freed")]


def _preempt(event: Event) -> list[SafeText]:
    by = safe(f"by {event.actor}", 24) if event.actor is not None else safe("")
    return [safe(event.reason or ""), _tokens(event, " to redo"), _blocks(event, " freed"), by]


def _move(event: Event) -> list[SafeText]:
    why = (event.reason or "").replace("_", " ")
    by = safe(f"by {event.actor}", 24) if event.actor is not None else safe("")
    waits = safe("waits for a replica") if event.to_replica is None else safe("")
    return [safe(why), _tokens(event, " to redo"), waits, by]


def _other(event: Event) -> list[SafeText]:
    parts = [safe(event.reason or ""), _tokens(event, ""), _blocks(event, "")]
    if event.operation is not None:
        parts.append(safe_identifier(event.operation))
    if event.actor is not None:
        parts.append(safe(f"by {event.actor}", 24))
    return parts


def _operation(event: Event) -> list[SafeText]:
    """``op-3 inject started by root``; after what it came to a comma: nothing "failed by root"."""
    told = _operation_words(event)
    by = safe(f"by {event.actor}", 24) if event.actor else safe("")
    ident = safe_identifier(event.operation) if event.operation is not None else safe("")
    if ": " in told:
        return [join_text(" ", [word for word in (ident, told) if word]), by]
    return [join_text(" ", [word for word in (ident, told, by) if word])]


def _operation_words(event: Event) -> SafeText:
    """The message is ``KIND TARGET PHASE``; a message of another form is told as it is."""
    message = event.message or ""
    head, _, phase = message.rpartition(" ")
    if phase != event.reason or phase not in _PHASES:
        return safe(message or _PHASES.get(event.reason or "", event.reason or ""))
    head = _SHED.get(head, head.replace(" fleet", " on the whole fleet"))
    return safe(f"{head} {_PHASES[phase]}")


#: Paused and going on read alike otherwise.
_SHED = {
    "shed on fleet": "SHED ON: the batch tier pauses, on the whole fleet:",
    "shed off fleet": "shed off: the batch tier goes on, on the whole fleet:",
}


_PHASES = {
    "pending": "is asked for",
    "running": "started",
    "succeeded": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}


_DETAILS: dict[str, Callable[[Event], list[SafeText]]] = {
    "admit": _admit,
    "finish": _finish,
    "preempt": _preempt,
    "move": _move,
    "operation": _operation,
}


def _details(event: Event) -> SafeText:
    parts = _DETAILS.get(event.kind, _other)(event)
    if event.kind != "operation":
        parts.append(safe(event.message or ""))
    if event.synthetic:
        parts.append(safe("test"))
    return join_text(", ", [part for part in parts if part])


def _tokens(event: Event, what: str) -> SafeText:
    return safe(f"{short_count(event.tokens)} tok{what}") if event.tokens is not None else safe("")


def _blocks(event: Event, what: str) -> SafeText:
    return safe(f"{count(event.blocks)} blk{what}") if event.blocks is not None else safe("")
