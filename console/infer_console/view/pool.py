"""A replica's KV pool, last step and queue head in words and numbers."""

from infer_engine.protocol import GpuHealth, RequestRow

from infer_console.state.picture import ReplicaPicture
from infer_console.terminal.safe_text import SafeText, safe, safe_identifier
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, size
from infer_console.view.gauge import ADMIT_MARK, BATCH_MARK, kv_gauge
from infer_console.view.kv_unit import kv_unit
from infer_console.view.queue import fits_now, nobody_waits, reason_role, reason_word
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
    line.put("  free ", "dim").put(count(kv.free)).put("  of ", "dim").put(count(kv.total))
    line.put(" ").put(kv_unit(kv), "dim")
    if kv.batch_limit is not None:
        line.put(safe(f"  {BATCH_MARK} "), "mark").put("batch ≤ " if wide else "≤ ", "dim").put(
            count(kv.batch_limit)
        )
    if kv.admit_limit is not None:
        line.put(safe(f"  {ADMIT_MARK} "), "mark").put("admit ≤ " if wide else "≤ ", "dim").put(
            count(kv.admit_limit)
        )
        if wide and kv.total:
            share = safe(f"{percent(1 - kv.admit_limit / kv.total)}%")
            if len("  headroom ") + len(share) <= line.left:
                line.put("  headroom ", "dim").put(share)
    if wide and kv.total and kv.bytes_per_token and kv.block_size:
        whole = safe(f"  {size(kv.total * kv.block_size * kv.bytes_per_token)}")
        line.put(whole if len(whole) <= line.left else "", "dim")
    if kv.host_total and kv.host_used:
        host = safe(f"  host {count(kv.host_used)}/{count(kv.host_total)}")
        line.put(host if len(host) <= line.left else "", "warn")
    return line.row()


def step_row(replica: ReplicaPicture, width: int) -> Row:
    """What the last step was made of, and beside it the floor that the planner gives a decode step."""
    status, step = replica.status, replica.status.step
    line = Line(width).put(" STEP ", "label")
    if step is None:
        line.put("–", "dim")
    else:
        line.put(milliseconds(step.duration_s), "strong").put(
            "ms", "strong" if step.duration_s is not None else "dim"
        )
        line.put(" = decode ", "dim").put(count(step.decode_tokens)).put(" + chunk ", "dim")
        line.put(count(step.prefill_tokens)).put(" of budget ", "dim").put(count(step.token_budget))
        chunk = _chunk_words(replica)
        if chunk and len(chunk) < line.left - _FLOOR_CELLS * (width >= WIDE):
            line.put(chunk, "dim")
    if status.health == "stalled":
        line.put("   no step for ", "crit").put(age(status.step_age_s), "crit")
    floor = _floor_words(replica)
    return line.right(floor, "text").row() if len(floor) + 2 <= line.left else line.row()


#: Room kept for the floor, from the width at which it has a place.
_FLOOR_CELLS, WIDE = 48, 110


def _chunk_words(replica: ReplicaPicture) -> SafeText:
    """Whose prompt the chunk is of, and for how long still at this pace; nothing where several prefill."""
    step = replica.status.step
    prefilling = [row for row in replica.rows.values() if row.phase == "prefill"]
    if step is None or not step.prefill_tokens or len(prefilling) != 1:
        return safe("")
    row = prefilling[0]
    left = row.prompt_tokens + row.generated_tokens - row.computed_tokens
    more = ""
    if step.duration_s is not None and left > 0:
        more = f", ~{age(left / step.prefill_tokens * step.duration_s)} more"
    return safe(f" ({safe_identifier(row.id)}{more})")


def _floor_words(replica: ReplicaPicture) -> SafeText:
    """The planner's floor of a decode step: the weights and the KV of the batch, read once. Where the
    bandwidth is not known, what is read."""
    status = replica.status
    weights = status.weight_bytes
    per_token = status.kv.bytes_per_token
    if weights is None or per_token is None:
        return safe("")
    running = [row for row in replica.rows.values() if row.state == "running"]
    if not running and status.running:
        return safe("")  # whose KV it is, is not known yet
    kv = sum(row.computed_tokens for row in running) * per_token
    bandwidth = status.bandwidth_bytes_per_s
    if not bandwidth:
        return safe(f"decode reads weights {size(weights)} + KV {size(kv)} ")
    floor = (weights + kv) / bandwidth * 1000
    parts = f"weights {weights / bandwidth * 1000:.1f} + KV {kv / bandwidth * 1000:.1f}"
    return safe(f"decode floor {floor:.1f}ms = {parts} ")


def _usage(line: Line, gpu: GpuHealth) -> None:
    """What NVIDIA's exporter tells and NVML is not asked for."""
    if gpu.power_w is not None:
        line.put("  ").put(safe(f"{gpu.power_w:.0f}W"))
    if gpu.memory_used_bytes is not None:
        total = f"/{size(gpu.memory_total_bytes)}" if gpu.memory_total_bytes is not None else ""
        line.put("  mem ", "dim").put(safe(f"{size(gpu.memory_used_bytes)}{total}"))
    if gpu.utilisation is not None:
        line.put("  busy ", "dim").put(safe(f"{percent(gpu.utilisation)}%"))


def device_row(replica: ReplicaPicture, width: int) -> Row:
    """The GPU's health, or that nobody tells of it; and what runs here."""
    status, gpu = replica.status, replica.status.gpu
    line = Line(width).put(" GPU ", "label")
    if status.gpu_trouble:
        line.put("BAD ", "crit").put(safe(status.gpu_trouble, 60), "crit").put("  ")
    if gpu is None:
        untold = "health not told (no NVML)"
        if status.watched_url is not None:
            untold = "health not told; DCGM's exporter tells it: --connect …,dcgm+http://HOST:9400"
        simulated = "none: simulated" if status.simulated else untold
        line.put(simulated if not status.gpu_trouble else "", "dim")
    else:
        if not status.gpu_trouble:
            line.put("LOST" if gpu.lost else "ok", "crit" if gpu.lost else "ok").put(" ")
        hot = gpu.temperature_c is not None and gpu.slowdown_c is not None
        hot = hot and (gpu.temperature_c or 0) >= (gpu.slowdown_c or 0) - _NEAR_SLOWDOWN_C
        line.put(safe(f"{count(gpu.temperature_c)}°C"), "warn" if hot else "text")
        _usage(line, gpu)
        errors = gpu.uncorrectable_errors
        line.put("  ecc ", "dim").put(count(errors), "crit" if errors else "text")
        xids = " ".join(str(xid) for xid in gpu.xids[-4:])
        line.put("  xid ", "dim").put(safe(xids or "none", 30), "crit" if xids else "text")
        if gpu.slowed_by:
            line.put("  slowed by ", "warn").put(safe(", ".join(gpu.slowed_by), 40), "warn")
    facts = [status.device] if status.device else []
    if status.upstream is not None:
        facts = [f"{status.upstream} at {status.device}" if status.device else status.upstream]
    if status.simulated:
        facts.append("simulated")
    else:
        facts += [status.dtype] if status.dtype else []
        facts += [f"pid {status.pid}"] if status.pid is not None else []
    if status.incarnation > 1:
        facts.append(f"life {status.incarnation}")
    # With a gap, or not at all: a temperature must not run into a number of GPUs.
    return line.right(safe("  " + "  ".join(facts) + " ", 62), "dim").row()


#: Degrees below the GPU's slowdown from which it is told as hot.
_NEAR_SLOWDOWN_C = 5


def why_row(replica: ReplicaPicture, width: int, shed: bool = False) -> Row:
    """Why the head of the queue waits, and whom it holds up. ``shed``: an operator has batch pause."""
    status = replica.status
    waiting = [
        replica.rows[id] for id in replica.order if id in replica.rows and replica.rows[id].state == "waiting"
    ]
    line = Line(width).put(" ")
    if status.error:
        return line.put("▲ ", "crit").put(safe(status.error), "crit").row()
    if not waiting:
        return line.put(nobody_waits(replica), "dim").row()
    head = waiting[0]
    line.put("why: ", "label").put("head ").put(safe_identifier(head.id), "strong").put(" ")
    _head_reason(line, head)
    if shed and head.waiting_reason == "tier":
        line.put(" (batch is shed)", "dim")
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
