"""The fleet table: a row per replica."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from infer_engine.protocol import Kv, Operation, Replica, Slo

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.alarms import alarm_sign, worst_alarms
from infer_console.view.columns import wanted
from infer_console.view.filter import compiled
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, rate, seconds
from infer_console.view.gauge import kv_gauge, kv_head
from infer_console.view.layout import rule, window
from infer_console.view.look import Look
from infer_console.view.order import fleet_order, follow
from infer_console.view.row import Line, Role, Row
from infer_console.view.slo import in_column, role_of, targets
from infer_console.view.table import Cell, Column, fit_columns, head_row, item_row

#: Cells before the first column: the cursor and the alarm sign.
LEAD = 2
#: Under this width the columns are narrower.
NARROW = 100


@dataclass(frozen=True, slots=True)
class Item:
    """A replica with what the rest of the picture says about it."""

    status: Replica
    drain: Operation | None = None


def active_drain(picture: Picture, replica: str) -> Operation | None:
    """The drain under way on a replica."""
    return next(
        (
            operation
            for operation in reversed(picture.operations)
            if operation.kind == "drain"
            and operation.target == replica
            and operation.phase in ("pending", "running")
        ),
        None,
    )


def state_cell(item: Item, narrow: bool = False) -> Cell:
    """``narrow``: in seven cells."""
    status = item.status
    match status.state:
        case "ready":
            return Cell("ready", "ok")
        case "starting":
            if status.load_progress is not None:
                loaded = percent(status.load_progress)
                return Cell(safe(f"load{loaded}%" if narrow else f"load {loaded}%"), "accent")
            return Cell("boot" if narrow else "starting", "accent")
        case "draining":
            drain = item.drain
            if drain is not None and drain.done is not None and drain.total:
                done = f"{drain.done}/{drain.total}"
                return Cell(safe(f"D{done}" if narrow and len(done) < 7 else f"drain {done}", 11), "warn")
            return Cell("drain" if narrow else "draining", "warn")
        case "drained":
            return Cell("drained", "warn")
        case "fenced":
            return Cell("FENCED", "crit")
        case "failed":
            return Cell("FAILED", "crit")
        case "restarting":
            return Cell("restart", "crit")
        case other:
            return Cell(safe(other), "warn")


def health_cell(status: Replica) -> Cell:
    match status.health:
        case None:
            return Cell(UNKNOWN, "dim")
        case "ok":
            return Cell("ok", "ok")
        case "idle":
            return Cell("idle", "dim")
        case "stalled":
            return Cell("STALL", "crit")
        case "bad":
            return Cell("BAD", "crit")


def _number(text: SafeText, role: Role = "text") -> Cell:
    return Cell(text, "dim" if text == UNKNOWN else role)


def _step_cell(item: Item) -> Cell:
    """The last step's duration, or for how long there has been none."""
    status = item.status
    if status.health == "stalled" and status.step_age_s is not None:
        return Cell(safe(f"-{age(status.step_age_s)}"), "crit")
    # With nothing running there is no step: the 0 s of one that did nothing is no speed.
    busy = status.running is None or status.running > 0
    duration_s = status.step.duration_s if status.step is not None and busy else None
    if duration_s is not None and duration_s < 0.9995:
        return Cell(safe(f"{milliseconds(duration_s)}ms"))
    return _number(age(duration_s))


def _waiting_cell(item: Item) -> Cell:
    return _number(count(item.status.waiting), "warn" if item.status.waiting else "text")


def _oldest_cell(item: Item) -> Cell:
    status = item.status
    return _number(age(status.queue_wait_s.oldest if status.waiting else None), "warn")


def _kv_percent(item: Item) -> Cell:
    kv = item.status.kv
    if kv.used is None or not kv.total:
        return Cell(UNKNOWN, "dim")
    above = kv.admit_limit is not None and kv.used > kv.admit_limit
    return Cell(percent(kv.used / kv.total), "warn" if above else "text")


def _latency_cell(value_s: float | None, shown: SafeText, target_s: float | None) -> Cell:
    if shown == UNKNOWN:
        return Cell(in_column(shown, None, target_s), "dim")
    return Cell(in_column(shown, value_s, target_s), role_of(value_s, target_s))


def _preemptions(item: Item) -> Cell:
    value = item.status.preemptions_per_min
    return _number(count(value), "warn" if value else "text")


def _hits(item: Item) -> Cell:
    return _number(percent(item.status.prefix_hit_ratio))


def _gpu(item: Item) -> Cell:
    """The hottest GPU under it, and how busy they are; ``!`` and in red where they are not to be trusted."""
    gpu = item.status.gpu
    if gpu is None:
        return Cell(UNKNOWN, "dim")
    words = f"{count(gpu.temperature_c)}° {percent(gpu.utilisation)}%"
    return Cell(safe(f"{words}!"), "crit") if item.status.gpu_trouble else Cell(safe(words))


def _latencies(slo: Slo) -> list[Column[Item]]:
    def ttft99(item: Item) -> Cell:
        value = item.status.ttft_s.p99
        return _latency_cell(value, seconds(value), slo.ttft_p99_s)

    def itl99(item: Item) -> Cell:
        value = item.status.itl_s.p99
        return _latency_cell(value, milliseconds(value), slo.itl_p99_s)

    return [
        Column("TTFT50", 6, lambda item: _number(seconds(item.status.ttft_s.p50)), need=9, key="ttft50"),
        Column(_head("TTFT99", slo.ttft_p99_s), 6 + bool(slo.ttft_p99_s), ttft99, key="ttft"),
        Column("ITL50", 5, lambda item: _number(milliseconds(item.status.itl_s.p50)), need=10, key="itl50"),
        Column(_head("ITL99", slo.itl_p99_s), 5 + bool(slo.itl_p99_s), itl99, need=3, key="itl"),
    ]


def _head(head: SafeText | LiteralString, target: float | None) -> SafeText:
    """Over its digits, where marks have a place behind them."""
    return safe(f"{head} " if target else head)


def columns(
    kv: Kv | None,
    with_hits: bool,
    id_width: int,
    slo: Slo | None = None,
    narrow: bool = False,
    with_gpus: bool = False,
) -> list[Column[Item]]:
    """``kv`` gives the percentages above the marks; None where the replicas' marks differ. ``narrow`` is for
    terminals of about 80 columns."""
    state, health, oldest = (7, 5, 4) if narrow else (11, 6, 6)
    made: list[Column[Item]] = [
        Column(
            "ID", id_width, lambda item: Cell(safe_identifier(item.status.id), "strong"), 0, True, key="id"
        ),
        Column("STATE", state, lambda item: state_cell(item, narrow), left=True, key="state"),
        Column(
            "HLTH" if narrow else "HEALTH",
            health,
            lambda item: health_cell(item.status),
            4,
            True,
            key="health",
        ),
        Column("STEP", 7, _step_cell, need=8, key="step"),
        Column("RUN", 4, lambda item: _number(count(item.status.running)), key="running"),
        Column("WAIT", 4, _waiting_cell, key="waiting"),
        Column("OLD" if narrow else "OLDEST", oldest, _oldest_cell, need=5, key="oldest"),
        Column("QW99", 5, lambda item: _number(seconds(item.status.queue_wait_s.p99)), need=7, key="qwait"),
        Column(
            "KV",
            15 if narrow else 12,
            _kv_percent,
            grows=60,
            need=1,
            left=True,
            draw=lambda item, width: kv_gauge(item.status.kv, width),
            draw_head=lambda width: kv_head(kv, width),
        ),
        Column("%", 3, _kv_percent, key="kv"),
        Column("TOK/S", 6, lambda item: _number(rate(item.status.tokens_per_s)), need=2, key="tokens"),
        *_latencies(slo or Slo()),
        Column("PRE" if narrow else "PRE/m", 3 if narrow else 5, _preemptions, need=6, key="preemptions"),
    ]
    if with_gpus:
        made.append(Column("GPU", 9, _gpu, need=5, key="gpu"))
    if with_hits:
        made.append(Column("HIT%", 4, _hits, need=11, key="hits"))
    return made


def _common_kv(replicas: Sequence[ReplicaPicture]) -> Kv | None:
    """A pool that stands for all in the table's head: None unless all marks are at the same percentages."""
    known = [replica.status.kv for replica in replicas if replica.status.kv.total]
    shares = {
        (round((kv.batch_limit or 0) / (kv.total or 1), 2), round((kv.admit_limit or 0) / (kv.total or 1), 2))
        for kv in known
    }
    return known[0] if len(shares) == 1 else None


def _old_row(picture: Picture, width: int) -> Row:
    """What is shown is what was told last."""
    old = "" if picture.link.age_s is None else f" {age(picture.link.age_s)} ago"
    return Line(width).put(safe(f" as it was{old}, before the connection was lost:"), "warn").row()


def _filter_rule(picture: Picture, look: Look, shown: int, width: int) -> Row:
    """Says that this is not all: a filter goes on after it was typed."""
    total = safe(f"{shown} of {len(picture.replicas)}")
    trouble = compiled(look.filter).trouble
    note = f"filter: {safe(look.filter)}" + (f", {trouble}" if trouble else "")
    return rule(width, "REPLICAS", total, safe(note, max(8, width - 30)))


def _hidden_row(replicas: Sequence[ReplicaPicture], shown: range, hidden: int, look: Look, width: int) -> Row:
    """How many are above and below, and how many of them are not well."""
    above, below = shown.start, len(replicas) - shown.stop
    sick = sum(
        replica.status.state != "ready" or replica.status.health in ("bad", "stalled")
        for index, replica in enumerate(replicas)
        if index not in shown
    )
    text = f"   … {count(hidden)} more replicas ({count(above)} above, {count(below)} below), "
    text += f"{count(sick)} of them not ready or not well; by {look.fleet_sort}"
    return Line(width).put(safe(text), "warn" if sick else "dim").row()


def replica_table(picture: Picture, look: Look, width: int, height: int) -> list[Row]:
    """The head and as many replicas as fit, around the cursor; the last line counts the rest."""
    if height <= 0:
        return []
    replicas = fleet_order(picture, look)
    with_hits = any(replica.status.prefix_hit_ratio is not None for replica in replicas)
    # What DCGM's exporter tells; of our own replicas NVML is asked for trouble alone.
    with_gpus = any(replica.status.gpu and replica.status.gpu.utilisation is not None for replica in replicas)
    named = any(replica.status.watched_url for replica in replicas) and width >= NARROW
    id_width = min(22 if named else 16, max((len(replica.status.id) for replica in replicas), default=2))
    made = columns(
        _common_kv(replicas),
        with_hits,
        id_width,
        targets(picture),
        narrow=width < NARROW,
        with_gpus=with_gpus,
    )
    fitted = fit_columns(wanted(made, look.columns.get("replicas")), width - LEAD)
    rows = [_filter_rule(picture, look, len(replicas), width)] if look.filter else []
    if picture.link.state == "lost":
        rows.append(_old_row(picture, width))
    rows.append(head_row(fitted, width, LEAD, look.fleet_sort))
    cursor = follow(picture, look, "fleet", "replicas", [replica.status.id for replica in replicas])
    room = height - len(rows)
    shown = window(len(replicas), room if len(replicas) <= room else max(1, room - 1), cursor.index)
    focused = look.pane("fleet") == "replicas"
    worst = worst_alarms(picture)
    for index in shown:
        status = replicas[index].status
        selected = status.id == cursor.id
        line = Line(width, "cursor" if selected and focused else "plain")
        line.put("▸" if selected else " ", "accent")
        alarm = worst.get(status.id)
        sign, role = alarm_sign(alarm) if alarm is not None else (safe(" "), "text")
        line.put(sign, role)
        rows.append(item_row(fitted, Item(status, active_drain(picture, status.id)), width, line, line.tone))
    if len(shown) < len(replicas):
        hidden = len(replicas) - len(shown)
        rows.append(_hidden_row(replicas, shown, hidden, look, width))
    elif not replicas and look.filter:
        rows.append(Line(width).put(safe(f"   no replica matches “{safe(look.filter)}”"), "dim").row())
    elif not replicas:
        rows.append(Line(width).put("   no replica is known yet", "dim").row())
    return rows[:height]
