"""The table of the Requests screen: a row per request of the fleet, wherever it is and however it ended."""

from collections.abc import Callable

from infer_engine.protocol import RequestRow

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, join_text, safe, safe_identifier
from infer_console.view.columns import of_tokens, wanted
from infer_console.view.filter import compiled
from infer_console.view.format import UNKNOWN, age, count, milliseconds, seconds, short_count
from infer_console.view.kv_unit import in_tokens
from infer_console.view.layout import rule, window
from infer_console.view.listing import MAX_ENDED, Counts, Item, counts, every_item, listed
from infer_console.view.look import Look
from infer_console.view.order import follow
from infer_console.view.queue import reason_word
from infer_console.view.roster import GENERATED_CELLS, generated_cell, phase_cell, tier_cell
from infer_console.view.row import Line, Role, Row
from infer_console.view.table import Cell, Column, fit_columns, head_row, item_row
from infer_console.view.watched import fleet_needs, is_watched, products, tells_requests

LEAD = 2
_ENDINGS: dict[str, Role] = {"stop": "ok", "length": "ok", "cancelled": "warn", "error": "crit"}


#: Of WHY: a long reason and what it lacks, where there is room for it; and what a narrow screen has.
_WHY_CELLS, _NARROW_WHY_CELLS = 25, 22
_ROOMY = 100


def columns(longest: int, with_client_ids: bool, width: int = _ROOMY) -> list[Column[Item]]:
    """``longest`` is the length of the longest id."""
    why_cells = _WHY_CELLS if width >= _ROOMY else _NARROW_WHY_CELLS
    made: list[Column[Item]] = [
        Column(
            "REQ",
            min(10, max(6, longest)),
            lambda item: Cell(safe_identifier(item.id), "strong"),
            left=True,
            grows=max(0, min(longest, 28) - 10),
        ),
        Column("STATE", 11, _state, left=True),
        Column("TENANT", 9, lambda item: Cell(safe(item.tenant or "–", 24)), need=1, left=True, grows=8),
        Column("TIER", 4, _tier, need=6, left=True),
        Column("ON", 4, _replica, left=True, grows=4),
        Column("PROMPT", 7, lambda item: _of(item, lambda row: count(row.prompt_tokens)), need=3),
        Column("CACHED", 7, lambda item: _of(item, lambda row: count(row.cached_tokens)), need=11),
        Column("GEN/MAX", GENERATED_CELLS, _generated, need=5),
        Column("BLOCKS", 6, _blocks, need=4),
        Column("AGE", 6, _age),
        Column("WAITED", 6, lambda item: _of(item, lambda row: age(row.queue_wait_s)), need=8),
        Column("TTFT s", 6, lambda item: _of(item, lambda row: seconds(row.ttft_s)), need=7),
        Column("ITL ms", 6, lambda item: _of(item, lambda row: milliseconds(row.last_itl_s)), need=9),
        Column("PRE", 3, lambda item: _of(item, lambda row: count(row.preemptions), warn_over="0"), need=10),
        Column("WHY", why_cells, _why, left=True, grows=60),
    ]
    if with_client_ids:
        made.append(Column("CLIENT'S ID", 12, _client_id, need=12, left=True, grows=24))
    return made


def _of(item: Item, show: Callable[[RequestRow], SafeText], warn_over: str | None = None) -> Cell:
    """A number of the row; unknown of a request that ended and of which the server kept nothing."""
    text = show(item.row) if item.row is not None else UNKNOWN
    if text == UNKNOWN or (warn_over is not None and text == warn_over):
        return Cell(text, "dim")
    return Cell(text, "warn" if warn_over is not None else "text")


def _state(item: Item) -> Cell:
    if item.state == "ended":
        if item.event is not None and item.event.kind == "reject":
            return Cell("rejected", "crit")
        told = item.event.reason if item.event is not None else None
        reason = told or (item.row.finish_reason if item.row is not None else None) or "ended"
        return Cell(safe(reason, 11), _ENDINGS.get(reason, "text"))
    if item.row is None or item.row.state == "waiting":
        return Cell("waiting", "warn")
    return phase_cell(item.row)


def _tier(item: Item) -> Cell:
    if item.row is not None:
        return tier_cell(item.row)
    event = item.event
    if event is None or event.tier is None:
        return Cell(UNKNOWN, "dim")
    mark = "°" if event.synthetic else ""
    return Cell(safe(f"{'int' if event.tier == 'interactive' else 'bat'}{mark}"), "dim")


def _replica(item: Item) -> Cell:
    return Cell(safe_identifier(item.replica)) if item.replica is not None else Cell("gate", "dim")


def _generated(item: Item) -> Cell:
    row, event = item.row, item.event
    if row is not None:
        return generated_cell(row)
    known = event.tokens if event is not None and event.kind == "finish" else None
    return Cell(count(known), "text" if known is not None else "dim")


def _blocks(item: Item) -> Cell:
    """What it holds; of one that waits, what it needs; one that ended holds nothing."""
    row = item.row
    if item.state == "ended":
        return Cell(UNKNOWN, "dim")
    if row is not None and row.state == "waiting":
        return Cell(count(row.needs_blocks), "dim")
    return _of(item, lambda each: count(each.kv_blocks))


def _age(item: Item) -> Cell:
    """How long it has been here; of one that ended, how long it was."""
    if item.row is not None:
        return Cell(age(item.row.age_s), "warn" if item.state == "waiting" else "text")
    return Cell(UNKNOWN, "dim")


def _why(item: Item) -> Cell:
    row, event = item.row, item.event
    if row is not None and item.state != "ended":
        return why_cell(row, unit="")
    if event is not None and event.kind == "reject":
        return Cell(join_text(" ", [safe(event.reason or "", 40), safe(event.message or "", 80)]), "crit")
    parts: list[SafeText] = []
    if event is not None:
        parts.append(safe(f"by {event.actor}", 40) if event.actor is not None else safe(""))
        parts.append(safe(event.message or "", 80))
        parts.append(safe(f"{count(event.blocks)} blk freed") if event.blocks is not None else safe(""))
    if row is not None:
        parts += _what_was_done(row)
    return Cell(join_text(", ", [part for part in parts if part]), "dim")


def why_cell(row: RequestRow, unit: str = " blk") -> Cell:
    """Why it waits and what it lacks; of one that runs, what was done to it. A table has no room for the
    ``unit``: its column of blocks says it."""
    parts: list[SafeText] = []
    if row.state == "waiting":
        word = "slots full" if row.waiting_reason == "slots" else reason_word(row)
        behind = f" {safe_identifier(row.behind)}" if row.behind is not None else ""
        parts.append(safe(f"{word}{behind}"))
        if row.needs_blocks is not None and row.admissible_blocks is not None:
            short = row.needs_blocks - row.admissible_blocks
            parts.append(safe(f"short {count(short)}{unit}" if short > 0 else "KV fits"))
    parts += _what_was_done(row)
    waits = row.state == "waiting" and row.waiting_reason not in ("behind", None)
    return Cell(join_text(", ", parts), "warn" if waits else "text")


def _what_was_done(row: RequestRow) -> list[SafeText]:
    """Preemptions and moves, where there were any."""
    parts: list[SafeText] = []
    if row.preemptions:
        kept = "" if row.state == "finished" else f", {short_count(row.generated_tokens)} tok kept"
        parts.append(safe(f"preempted {row.preemptions}×{kept}"))
    if row.moves:
        parts.append(safe(f"moved {row.moves}×"))
    return parts


def _client_id(item: Item) -> Cell:
    """The client's own label, quoted: it is not an id that anything here acts on."""
    label = item.row.client_id if item.row is not None else None
    return Cell(safe(f'"{safe(label, 40)}"'), "dim") if label else Cell("")


def request_table(picture: Picture, look: Look, width: int, height: int) -> list[Row]:
    """Title, heads, the requests around the cursor, and what is not among them."""
    if height <= 0:
        return []
    items = listed(picture, look)
    cursor = follow(picture, look, "requests", "requests", [item.id for item in items])
    rows = [_title(picture, look, len(items), width)]
    longest = max((len(item.id) for item in items), default=8)
    with_ids = any(item.row is not None and item.row.client_id for item in items)
    made = wanted(columns(longest, with_ids, width), look.columns.get("requests"))
    if in_tokens(picture.replicas.values()):
        made = of_tokens(made)
    fitted = fit_columns(made, width - LEAD)
    rows.append(head_row(fitted, width, LEAD))
    foot = _foot(picture, look, width)
    room = max(1, height - len(rows) - len(foot))
    if cursor.id is None:
        cursor.index = 0  # what was selected is gone: the list shows its top, not where that stood
    shown = window(len(items), room if len(items) <= room else max(1, room - 1), cursor.index)
    for index in shown:
        item = items[index]
        selected = item.id == cursor.id
        line = Line(width, "cursor" if selected else "plain").put("▸" if selected else " ", "accent")
        line.put("●" if item.id in look.marked else " ", "accent")
        rows.append(item_row(fitted, item, width, line, line.tone))
    if len(shown) < len(items):
        above, below = shown.start, len(items) - shown.stop
        rows.append(Line(width).put(safe(f"   … {count(above)} above, {count(below)} below"), "dim").row())
    elif not items and is_watched(picture) and not tells_requests(picture):
        rows += fleet_needs(f"{products(picture)} does not tell its requests", picture, width)
    elif not items:
        rows.append(Line(width).put(_nobody(picture, look), "dim").row())
    return [*rows[: max(1, height - len(foot))], *foot][:height]


def _title(picture: Picture, look: Look, shown: int, width: int) -> Row:
    there = counts(every_item(picture))
    more = "+" if there.ended == MAX_ENDED else ""
    words = f"{count(there.waiting)} waiting, {count(there.running)} running, {there.ended}{more} ended"
    if is_watched(picture) and not tells_requests(picture):
        return rule(width, "REQUESTS", safe("not told"), "", focused=True)
    if is_watched(picture):  # only what its slots work on is listed
        words = f"{count(there.running)} running; those that wait or ended are not told"
    if look.filter or look.shown != "all":
        words = f"{count(shown)} of {words}"
    notes = [*_listed(picture, there), f"sort: {look.request_sort}"]
    if look.shown != "all":
        notes.append(f"only {look.shown}")
    if look.filter:
        notes.append(f"filter: {safe(look.filter)}")
    return rule(width, "REQUESTS", safe(words), safe("  ".join(notes), max(8, width // 2)), focused=True)


def _listed(picture: Picture, there: Counts) -> list[str]:
    """The list is asked for once a second, and the vital line is told: where they differ, why."""
    listing, totals = picture.listing, picture.totals
    if listing is None or totals is None or any(listing.omitted.values()):
        return []
    if (totals.waiting, totals.running) == (there.waiting, there.running):
        return []
    return [f"listed {age(max(0.0, picture.at - listing.at))} ago"]


def _foot(picture: Picture, look: Look, width: int) -> list[Row]:
    """What of the fleet's requests is not in the list, and what is wrong with the list or the filter."""
    rows: list[Row] = []
    listing = picture.listing
    if listing is not None and any(listing.omitted.values()):
        more = ", ".join(f"{count(number)} {state}" for state, number in listing.omitted.items() if number)
        text = f" … more than {count(len(listing.rows))}: the oldest are listed, not {more}"
        rows.append(Line(width).put(safe(text), "warn").row())
    if (
        listing is None
        and not is_watched(picture)
        and any(replica.status.running for replica in picture.replicas.values())
    ):
        text = " only requests of replicas whose roster is known"
        rows.append(Line(width).put(text, "dim").row())
    if picture.listing_message and not is_watched(picture):
        old = f" (as of {age(picture.at - listing.at)} ago)" if listing is not None else ""
        rows.append(Line(width).put(safe(f" no list: {picture.listing_message}{old}", 200), "crit").row())
    trouble = compiled(look.filter).trouble if look.filter else ""
    if trouble:
        rows.append(Line(width).put(safe(f" filter: {trouble}", 120), "warn").row())
    return rows


def _nobody(picture: Picture, look: Look) -> SafeText:
    if look.filter:
        return safe(f"   no request matches “{look.filter}”", 100)
    if look.shown != "all":
        return safe(f"   nobody is {look.shown}")
    if picture.listing is None and picture.totals is not None and (picture.totals.running or 0):
        return safe("   the list is on its way")
    if is_watched(picture):
        return safe("   no request is told at the moment")
    return safe("   no request at the moment, and none ended in the last 5 minutes")
