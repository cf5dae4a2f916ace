"""Who uses the fleet: tenants by the KV they hold."""

from infer_engine.protocol import TenantLimits, TenantUse

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.format import UNKNOWN, clock, count, percent, short_count
from infer_console.view.layout import rule
from infer_console.view.row import Line, Row
from infer_console.view.table import Cell, Column, fit_columns, head_row, item_row
from infer_console.view.watched import fleet_needs, is_watched


def pool_blocks(picture: Picture) -> int:
    """Blocks of all pools that are known."""
    return sum(replica.status.kv.total or 0 for replica in picture.replicas.values())


def by_use(picture: Picture) -> list[TenantUse]:
    """Tenants that have something here, as the server lists them: the most blocks first, the others last."""
    return picture.totals.tenants if picture.totals is not None else []


def name_of(use: TenantUse) -> SafeText:
    return safe(f"{count(use.tenants)} others") if use.tenants > 1 else safe(use.tenant, 24)


def crowds(use: TenantUse) -> bool:
    """It holds more than all others together, and not little, as the server has it."""
    return use.crowds_since is not None


def limit_words(limits: TenantLimits) -> SafeText:
    """``60/m, ≤8,000 tok, KV≤25%``; empty where there is no limit."""
    words = [
        f"{count(limits.requests_per_minute)}/m" if limits.requests_per_minute is not None else "",
        f"≤{count(limits.prompt_tokens)} tok" if limits.prompt_tokens is not None else "",
        f"KV≤{percent(limits.kv_share)}%" if limits.kv_share is not None else "",
        f"{count(limits.long_prefills)} long" if limits.long_prefills is not None else "",
        limits.tier or "",
    ]
    return safe(", ".join(word for word in words if word))


def _limits_of(picture: Picture, use: TenantUse) -> SafeText:
    """Its own, or those of all that have none of their own; unknown of several together. Test traffic, which
    has no rate, is under no tenant's limits."""
    demand = picture.demand
    if demand is None or demand.limits is None or use.tenants > 1 or use.requests_per_min is None:
        return UNKNOWN
    limits = demand.limits.get(use.tenant, demand.default_limits)
    return (limit_words(limits) if limits is not None else None) or UNKNOWN


def _limits_word(picture: Picture) -> SafeText:
    """``limits: none``, or who has some."""
    demand = picture.demand
    if demand is None or demand.limits is None:
        return safe("")
    words = [safe(name, 12) for name in list(demand.limits)[:2]]
    words += [f"{count(len(demand.limits) - 2)} more"] if len(demand.limits) > 2 else []
    everyone = demand.default_limits is not None and limit_words(demand.default_limits)
    words += ["all others" if words else "all"] if everyone else []
    return safe(f"limits: {', '.join(words) or 'none'}")


def _columns(picture: Picture, name_cells: int) -> list[Column[TenantUse]]:
    pool = pool_blocks(picture)

    def share(use: TenantUse) -> Cell:
        text = percent(use.kv_blocks / pool) if pool else UNKNOWN
        return Cell(safe(f"{text}%{'▲' if crowds(use) else ' '}"), "crit" if crowds(use) else "text")

    def waiting(use: TenantUse) -> Cell:
        return Cell(count(use.waiting), "warn" if use.waiting else "dim")

    def refused(use: TenantUse) -> Cell:
        return Cell(count(use.refused_per_min), "warn" if use.refused_per_min else "dim")

    limits = {use: _limits_of(picture, use) for use in by_use(picture)}
    longest = max((len(each) for each in limits.values()), default=0)
    made: list[Column[TenantUse]] = [
        Column("TENANT", name_cells, lambda use: Cell(name_of(use), "strong"), left=True, grows=16),
        Column("RUN", 5, lambda use: Cell(count(use.running))),
        Column("WAIT", 5, waiting),
        Column("KV% ", 5, share),
        Column("PROMPT50", 8, lambda use: Cell(count(use.prompt_tokens_p50)), need=3),
        Column("REQ/m", 6, lambda use: Cell(count(use.requests_per_min)), need=4),
        Column("429/m", 5, refused, need=1),
        Column("SINCE", 5, _since, need=5),
    ]
    if any(each != UNKNOWN for each in limits.values()):

        def limited(use: TenantUse) -> Cell:
            text = limits.get(use, UNKNOWN)
            return Cell(text, "dim" if text == UNKNOWN else "text")

        made.append(
            Column("LIMITS", min(longest, 12), limited, need=2, left=True, grows=max(0, longest - 12))
        )
    return made


def _since(use: TenantUse) -> Cell:
    """Hour and minute: since when it crowds the others."""
    return Cell(safe(clock(use.crowds_since)[:5]), "crit" if crowds(use) else "dim")


def tenant_section(picture: Picture, width: int, height: int) -> list[Row]:
    """Title, heads and as many tenants as fit; the last line counts the rest."""
    if height <= 0:
        return []
    uses = by_use(picture)
    rows = [rule(width, "TENANTS by KV", None, _note(picture, width))]
    if not uses:
        return [*rows, *_nobody(picture, width, height - len(rows))][:height]
    fitted = fit_columns(_columns(picture, 8), width - 1)
    rows.append(head_row(fitted, width, 1))
    room = height - len(rows)
    shown = uses if len(uses) <= room else uses[: max(0, room - 1)]
    rows += [item_row(fitted, use, width, Line(width).put(" ")) for use in shown]
    if len(shown) < len(uses):
        hidden = uses[len(shown) :]
        tenants = sum(use.tenants for use in hidden)
        blocks = sum(use.kv_blocks for use in hidden)
        pool = pool_blocks(picture)
        share = percent(blocks / pool) if pool else UNKNOWN
        rows.append(Line(width).put(safe(f" … {count(tenants)} more hold {share}%"), "dim").row())
    return rows[:height]


def _nobody(picture: Picture, width: int, room: int) -> list[Row]:
    if not is_watched(picture):
        return [Line(width).put(" no tenant has anything here", "dim").row()]
    rows = fleet_needs("tenants are not told", picture, width)
    return rows if len(rows) <= room else [Line(width).put(" – tenants are not told", "dim").row()]


def _note(picture: Picture, width: int) -> SafeText:
    """Who is limited, and who was refused for it; the first alone where there is no room for both."""
    limits, refused = _limits_word(picture), _totals_word(picture)
    both = safe("  ".join(word for word in (refused, limits) if word))
    return both if len(both) + 22 <= width else limits or refused


def _totals_word(picture: Picture) -> SafeText:
    refused = sum(use.refused_per_min or 0 for use in by_use(picture))
    return safe(f"refused {count(refused)} in the last minute") if refused else safe("")


def tenant_line(picture: Picture, width: int) -> Row:
    """All of it in one line, for small terminals."""
    line = Line(width).put(" KV BY TENANT ", "label")
    uses, pool = by_use(picture), pool_blocks(picture)
    if not uses:
        return line.put("–", "dim").row()
    for index, use in enumerate(uses):
        share = percent(use.kv_blocks / pool) if pool else UNKNOWN
        words = f"{safe(name_of(use), 12)} {share}%{'▲' if crowds(use) else ''}"
        if index == 0:
            words += f" {count(use.running)}+{count(use.waiting)}w"
            words += f" p50 {short_count(use.prompt_tokens_p50)}" if use.prompt_tokens_p50 else ""
        rest = sum(other.tenants for other in uses[index:])
        if index and len(words) + 3 + (10 if index + 1 < len(uses) else 0) > line.left:
            return line.put(safe(f" │ {count(rest)} more"), "dim").row()
        line.put(" │ " if index else "", "rule").put(safe(words), "crit" if crowds(use) else "text")
    return line.row()
