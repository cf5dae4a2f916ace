"""The batch: a row per running request."""

from infer_engine.protocol import RequestRow

from infer_console.state.picture import ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.columns import of_tokens, wanted
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, seconds, short_count, size
from infer_console.view.kv_unit import in_tokens
from infer_console.view.layout import rule, window
from infer_console.view.look import Look
from infer_console.view.order import roster, unfiltered
from infer_console.view.owners import OwnerMark
from infer_console.view.row import Line, Row
from infer_console.view.table import Cell, Column, fit_columns, head_row, item_row
from infer_console.view.watched import TELL_REQUESTS, needs_rows

LEAD = 2
GENERATED_CELLS = 9


def phase_cell(row: RequestRow) -> Cell:
    if row.phase == "prefill":
        target = row.prompt_tokens + row.generated_tokens
        done = percent(row.computed_tokens / target) if target else UNKNOWN
        return Cell(safe(f"prefill {done}%"), "accent")
    if row.phase == "decode":
        return Cell("decode")
    return Cell(UNKNOWN, "dim")


def tier_cell(row: RequestRow) -> Cell:
    """Three letters; ``°`` marks test traffic."""
    name = "int" if row.tier == "interactive" else "bat"
    return Cell(safe(name + ("°" if row.synthetic else "")), "dim" if row.synthetic else "text")


def generated_cell(row: RequestRow) -> Cell:
    """Tokens of the answer and its limit, in thousands where both whole numbers would be cut."""
    whole = f"{count(row.generated_tokens)}/{count(row.max_tokens)}"
    short = f"{short_count(row.generated_tokens)}/{short_count(row.max_tokens)}"
    return Cell(safe(whole if len(whole) <= GENERATED_CELLS else short))


def _unknown_dim(text: str) -> Cell:
    shown = safe(text)
    return Cell(shown, "dim" if shown == UNKNOWN else "text")


def columns(
    replica: ReplicaPicture, marks: dict[str, OwnerMark], selected: str | None, width: int
) -> list[Column[RequestRow]]:
    bytes_per_block = (replica.status.kv.bytes_per_token or 0) * (replica.status.kv.block_size or 0)

    def mark(row: RequestRow) -> Cell:
        if row.id == selected:
            return Cell("█", "selected")
        owner = marks.get(row.id)
        return Cell(owner.letter, owner.role) if owner is not None else Cell(UNKNOWN, "dim")

    longest = max((len(row.id) for row in replica.rows.values()), default=8)
    made: list[Column[RequestRow]] = [
        Column("", 1, mark),
        Column(
            "REQ",
            min(10, max(6, longest)),
            lambda row: Cell(safe_identifier(row.id), "strong"),
            left=True,
            grows=max(0, min(longest, 28) - 10),
        ),
        Column("TENANT", 9, lambda row: Cell(safe(row.tenant, 24)), need=1, left=True, grows=8),
        Column("TIER", 4, tier_cell, need=5, left=True),
        Column("PHASE", 11, phase_cell, need=2, left=True),
        Column("PROMPT", 7, lambda row: Cell(count(row.prompt_tokens))),
        Column(
            "CACHED",
            7,
            lambda row: Cell(count(row.cached_tokens), "text" if row.cached_tokens else "dim"),
            need=9,
        ),
        Column("GEN/MAX", GENERATED_CELLS, generated_cell),
        Column("BLOCKS", 6, lambda row: Cell(count(row.kv_blocks))),
        Column("AGE", 6, lambda row: Cell(age(row.age_s)), need=1),
        Column("WAITED", 6, lambda row: _unknown_dim(age(row.queue_wait_s)), need=8),
        Column("TTFT s", 6, lambda row: _unknown_dim(seconds(row.ttft_s)), need=4),
        Column("ITL ms", 6, lambda row: _unknown_dim(milliseconds(row.last_itl_s)), need=3),
        Column(
            "PRE", 3, lambda row: Cell(count(row.preemptions), "warn" if row.preemptions else "dim"), need=6
        ),
    ]
    if bytes_per_block:
        made.insert(9, Column("KV", 7, lambda row: Cell(size(row.kv_blocks * bytes_per_block)), need=7))
    if any(row.client_id for row in replica.rows.values()):
        made.append(Column("CLIENT'S ID", 12, _client_id, need=10, left=True, grows=24))
    return made


def _client_id(row: RequestRow) -> Cell:
    """The client's own label, quoted: it is not an id that anything here acts on."""
    return Cell(safe(f'"{safe(row.client_id, 40)}"'), "dim") if row.client_id else Cell("")


def roster_section(replica: ReplicaPicture, look: Look, width: int, height: int) -> list[Row]:
    """Title, heads and the running requests around the cursor."""
    if height <= 0:
        return []
    rows = roster(replica, look)
    cursor = look.cursor("replica", "roster")
    every = roster(replica, unfiltered(look)) if look.filter else rows
    cursor.follow([row.id for row in rows], [row.id for row in every])
    focused = look.pane("replica") == "roster"
    running = replica.status.running
    total = count(running if running is not None else len(rows))
    note = safe(
        f"order: {look.roster_sort}" + (f"  filter: {look.filter}" if look.filter else ""), width // 2
    )
    made = [rule(width, "ROSTER", total, note, focused)]
    owners = [row.id for row in replica.rows.values() if row.kv_blocks]
    marks = {id: look.owners.mark(replica.status.id, id) for id in owners}
    selected = selected_request(replica, look)
    chosen = wanted(columns(replica, marks, selected, width), look.columns.get("roster"))
    if in_tokens([replica]):
        chosen = of_tokens(chosen)
    fitted = fit_columns(chosen, width - LEAD)
    made.append(head_row(fitted, width, LEAD))
    room = height - len(made)
    shown = window(len(rows), room if len(rows) <= room else max(1, room - 1), cursor.index)
    for index in shown:
        row = rows[index]
        here = row.id == cursor.id
        line = Line(width, "cursor" if here and focused else "plain")
        line.put("▸" if here and focused else "▹" if here else " ", "accent")
        line.put("●" if row.id in look.marked else " ", "accent")
        made.append(item_row(fitted, row, width, line, line.tone))
    if len(shown) < len(rows):
        made.append(Line(width).put(safe(f"   … {len(rows) - len(shown)} more running"), "dim").row())
    elif not rows:
        made += _nobody(replica, look, width)
    return made[:height]


def _nobody(replica: ReplicaPicture, look: Look, width: int) -> list[Row]:
    status = replica.status
    if status.watched_url and status.foreign not in TELL_REQUESTS and not look.filter:
        product = safe(status.foreign or "this server", 24)
        return needs_rows(f"{product} does not tell its requests", [replica], width, LEAD)
    return [Line(width).put(_why_nobody(replica, look), "dim").row()]


def _why_nobody(replica: ReplicaPicture, look: Look) -> SafeText:
    if look.filter:
        return safe(f"   nobody in the batch matches “{look.filter}”", 100)
    if replica.status.running:
        return safe("   the batch is not known yet")
    return safe("   the batch is empty")


def selected_request(replica: ReplicaPicture, look: Look) -> str | None:
    """The request whose blocks light up: the roster's cursor, or that of the queue or of the map while these
    have the focus."""
    pane = look.pane("replica")
    cursor = look.cursor("replica", pane if pane in ("queue", "blocks") else "roster")
    return cursor.id if cursor.id in replica.rows else None
