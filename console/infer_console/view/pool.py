"""A replica's KV pool, last step and queue head in words and numbers."""

from infer_engine.protocol import RequestRow

from infer_console.state.picture import ReplicaPicture
from infer_console.terminal.safe_text import safe, safe_identifier
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, size
from infer_console.view.gauge import ADMIT_MARK, BATCH_MARK, kv_gauge
from infer_console.view.queue import fits_now, reason_role, reason_word
from infer_console.view.row import Line, Row


def pool_rows(replica: ReplicaPicture, width: int, height: int) -> list[Row]:
    """The gauge over the whole width, and the numbers under it."""
    kv = replica.status.kv
    line = Line(width).put(" KV ", "label")
    ratio = percent(kv.used / kv.total) if kv.used is not None and kv.total else UNKNOWN
    line.put_spans(kv_gauge(kv, max(4, width - 11))).put(" ")
    line.put(ratio if ratio == UNKNOWN else safe(f"{ratio}%"), "strong")
    return [line.row(), _pool_numbers(replica, width)][: max(0, height)]


def _pool_numbers(replica: ReplicaPicture, width: int) -> Row:
    kv = replica.status.kv
    wide = width >= 100
    line = Line(width).put("    ").put("used ", "dim").put(count(kv.used), "used")
    line.put("  cached ", "dim").put(count(kv.cached), "cached")
    line.put(" (reclaimable)" if wide and kv.cached else "", "dim")
    line.put("  free ", "dim").put(count(kv.free)).put("  of ", "dim").put(count(kv.total)).put(" blk", "dim")
    if kv.batch_limit is not None:
        line.put(safe(f"  {BATCH_MARK} "), "mark").put("batch ≤ " if wide else "≤ ", "dim").put(
            count(kv.batch_limit)
        )
    if kv.admit_limit is not None:
        line.put(safe(f"  {ADMIT_MARK} "), "mark").put("admit ≤ " if wide else "≤ ", "dim").put(
            count(kv.admit_limit)
        )
        if wide and kv.total:
            line.put("  headroom ", "dim").put(safe(f"{percent(1 - kv.admit_limit / kv.total)}%"))
    if wide and kv.total and kv.bytes_per_token and kv.block_size:
        line.put("  ").put(size(kv.total * kv.block_size * kv.bytes_per_token), "dim")
    return line.row()


def step_row(replica: ReplicaPicture, width: int) -> Row:
    """What the last step was made of, and what runs it."""
    status, step = replica.status, replica.status.step
    line = Line(width).put(" STEP ", "label")
    if step is None:
        line.put("–", "dim")
    else:
        line.put(milliseconds(step.duration_s), "strong").put(
            "ms", "strong" if step.duration_s is not None else "dim"
        )
        line.put(" = decode ", "dim").put(count(step.decode_tokens)).put(" + prefill ", "dim")
        line.put(count(step.prefill_tokens)).put(" of budget ", "dim").put(count(step.token_budget)).put(
            " tok", "dim"
        )
        line.put(safe(f"   #{count(step.number)}"), "dim")
    if status.health == "stalled":
        line.put("   no step for ", "crit").put(age(status.step_age_s), "crit")
    facts = [status.device] if status.device else []
    if status.simulated:
        facts.append("simulated")
    else:
        facts += [status.dtype] if status.dtype else []
        facts += [f"pid {status.pid}"] if status.pid is not None else []
    # With a gap, or not at all: a count of steps must not run into a number of GPUs.
    return line.right(safe("  " + "  ".join(facts) + " ", 62), "dim").row()


def why_row(replica: ReplicaPicture, width: int) -> Row:
    """Why the head of the queue waits, and whom it holds up."""
    status = replica.status
    waiting = [
        replica.rows[id] for id in replica.order if id in replica.rows and replica.rows[id].state == "waiting"
    ]
    line = Line(width).put(" ")
    if status.error:
        return line.put("▲ ", "crit").put(safe(status.error), "crit").row()
    if not waiting:
        return line.put("nobody waits" if not status.waiting else "the queue is not known yet", "dim").row()
    head = waiting[0]
    line.put("why: ", "label").put("head ").put(safe_identifier(head.id), "strong").put(" ")
    _head_reason(line, head)
    behind = [row for row in waiting if row.waiting_reason == "behind"]
    if behind:
        line.put(safe(f"; {count(len(behind))} behind it"))
        would = sum(1 for row in behind if fits_now(row))
        if would:
            line.put(safe(f", {count(would)} would fit now"), "warn")
    return line.row()


def _head_reason(line: Line, head: RequestRow) -> None:
    if head.waiting_reason in ("kv", "headroom") and head.needs_blocks is not None:
        line.put("needs ").put(count(head.needs_blocks), "strong").put(" blk, ")
        line.put(count(head.admissible_blocks), "warn").put(" admissible")
        line.put(" (free, but above the mark)" if head.waiting_reason == "headroom" else "", "dim")
    else:
        line.put("waits: " if head.waiting_reason else "").put(reason_word(head), reason_role(head))
