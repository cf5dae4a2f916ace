"""What an action is about, in the numbers that it has at this moment: one row of its dialog."""

from infer_engine.protocol import Replica, Totals

from infer_console.actions.cancel import find_request
from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import safe, safe_identifier
from infer_console.view.format import UNKNOWN, age, count, milliseconds, percent, seconds
from infer_console.view.kv_unit import kv_unit
from infer_console.view.row import Line, Row
from infer_console.view.tenants import pool_blocks


def target_row(picture: Picture, kind: str, target: str | None, width: int) -> Row:
    """Of the request, tenant or replica ``target``, by the ``kind`` of targets that the action has; of the
    whole fleet where there is none."""
    line = Line(width, "dialog").put("now  ", "label")
    if kind == "request":
        return _request(line, picture, target)
    if kind == "tenant" and target is not None:
        return _tenant(line, picture, target)
    replica = picture.replicas.get(target or "")
    if replica is not None:
        return _replica(line, replica.status)
    if target is not None:
        return line.put("not there any more", "crit").row()
    return line.put(UNKNOWN, "dim").row() if picture.totals is None else _fleet(line, picture.totals)


def _replica(line: Line, status: Replica) -> Row:
    kv = status.kv
    line.put(safe(status.state)).put("  RUN ", "label").put(count(status.running))
    line.put("  WAIT ", "label").put(count(status.waiting)).put("  KV ", "label")
    known = kv.used is not None and bool(kv.total)
    line.put(percent(kv.used / kv.total) if kv.used is not None and kv.total else UNKNOWN)
    line.put("% " if known else " ", "dim")
    line.put(count(kv.used)).put(" of ", "dim").put(count(kv.total)).put(" ").put(kv_unit(kv), "dim")
    return _ttft(line, status.ttft_s.p99).row()


def _fleet(line: Line, totals: Totals) -> Row:
    line.put(safe(f"{totals.ready} of {totals.replicas} ready"))
    line.put("  RUN ", "label").put(count(totals.running))
    line.put("  WAIT ", "label").put(count(totals.waiting)).put("  KV ", "label")
    line.put(percent(totals.kv_used_ratio)).put("%" if totals.kv_used_ratio is not None else "", "dim")
    return _ttft(line, totals.ttft_s.p99).row()


def _ttft(line: Line, p99_s: float | None) -> Line:
    line.put("  TTFT p99 ", "label").put(seconds(p99_s))
    return line.put("s" if p99_s is not None else "", "dim")


def _tenant(line: Line, picture: Picture, tenant: str) -> Row:
    """What it uses of the whole fleet; the server names those with the most blocks alone."""
    uses = picture.totals.tenants if picture.totals is not None else []
    use = next((use for use in uses if use.tenants == 1 and use.tenant == tenant), None)
    if use is None:
        among = next((other.tenants for other in uses if other.tenants > 1), 0)
        words = f"not told: it may be one of {count(among)} others" if among else "it has nothing here"
        return line.put(safe(words) if uses else UNKNOWN, "dim").row()
    pool = pool_blocks(picture)
    line.put("RUN ", "label").put(count(use.running)).put("  WAIT ", "label").put(count(use.waiting))
    line.put("  KV ", "label").put(percent(use.kv_blocks / pool) if pool else UNKNOWN).put("% ", "dim")
    line.put(count(use.kv_blocks)).put(" blk", "dim")
    line.put("  REQ/m ", "label").put(count(use.requests_per_min))
    return line.put("  refused/m ", "label").put(count(use.refused_per_min)).row()


def _request(line: Line, picture: Picture, target: str | None) -> Row:
    row = find_request(picture, target)
    if row is None:
        return line.put("not there any more", "crit").row()
    line.put(safe(row.phase or row.state))
    if row.replica is not None:
        line.put(" on ", "dim").put(safe_identifier(row.replica), "strong")
    line.put("  prompt ", "label").put(count(row.prompt_tokens)).put("  generated ", "label")
    line.put(count(row.generated_tokens)).put("  blocks ", "label").put(count(row.kv_blocks))
    line.put("  age ", "label").put(age(row.age_s)).put("  ITL ", "label")
    return line.put(milliseconds(row.last_itl_s)).put("ms" if row.last_itl_s is not None else "", "dim").row()
