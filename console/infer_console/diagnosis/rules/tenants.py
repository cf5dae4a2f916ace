"""One tenant holds most of the memory while others wait for theirs."""

from collections.abc import Iterator

from infer_engine.protocol import Replica

from infer_console.diagnosis.case import Case
from infer_console.state.finding import Finding, Proposal
from infer_console.view.format import count, percent, short_count

#: Share of all blocks in use that is most of them.
SHARE = 0.6
#: Others wait without a break for so long.
HELD_S = 2.0
#: And somebody has waited at least so long: where many come, one of them stands in line at every look, each
#: for a step only.
LEAST_WAIT_S = 1.0
#: A tenant is not proposed to be held below this share of a pool.
LEAST_SHARE = 0.1
#: Share of the pool or of the slots with which batch crowds.
BATCH_SHARE = 0.4


def tenant_crowding(case: Case) -> Iterator[Finding]:
    totals = case.picture.totals
    if totals is None or len(totals.tenants) < 2 or not case.fleet.holds("others_waiting", 1, HELD_S):
        return
    used = sum(row.kv_blocks for row in totals.tenants)
    first = max(totals.tenants, key=lambda row: row.kv_blocks)
    if first.tenants != 1 or not used or first.kv_blocks < SHARE * used:
        return
    others = sum(row.waiting for row in totals.tenants) - first.waiting
    share = first.kv_blocks / used
    crowded = [
        name
        for name, replica, _ in case.serving()
        if replica.waiting and replica.tenants and replica.tenants[0].tenant == first.tenant
    ]
    if not any(_waited(replica) and _lacks_blocks(replica) for _, replica, _ in case.serving()):
        return
    pools = sum(replica.kv.total or 0 for _, replica, _ in case.serving())
    of_pools = first.kv_blocks / pools if pools else share
    allowed = max(LEAST_SHARE, round(of_pools / 2, 2))
    yield Finding(
        rule="tenant_crowding",
        replicas=crowded,
        since_s=case.fleet.held_s("others_waiting", 1),
        evidence={
            "tenant": first.tenant,
            "kv_blocks": first.kv_blocks,
            "kv_share": share,
            "running": first.running,
            "waiting": first.waiting,
            "others_waiting": others,
            "prompt_tokens_p50": first.prompt_tokens_p50,
            "requests_per_min": first.requests_per_min,
        },
        confidence=share,
        words=f"{first.tenant} holds {percent(share)}% of the blocks in use with {first.running} requests"
        f" (prompts of {short_count(first.prompt_tokens_p50)}); {others} of others wait",
        action=Proposal(
            name="tenant",
            target=first.tenant,
            params={"kv_share": f"{100 * allowed:.0f}"},
            words=f"{first.tenant} to {percent(allowed)}% of each pool",
            effect=f"as its requests end, {count(first.kv_blocks / 2)} blocks go to others, 0 running cut",
        ),
    )


def batch_crowding(case: Case) -> Iterator[Finding]:
    """The batch tier is to fill what interactive requests leave, not to keep them out."""
    for name, replica, track in case.ready():
        batch, total = replica.batch, replica.kv.total
        if batch is None or not total or not track.holds("interactive_waiting", 1, HELD_S):
            continue
        if not _waited(replica):
            continue
        waiting = round(track.last("interactive_waiting") or 0)
        blocks = batch.kv_blocks / total
        slots = batch.running / replica.max_running if replica.max_running else 0.0
        if max(blocks, slots) < BATCH_SHARE:
            continue
        yield Finding(
            rule="batch_crowding",
            replica=name,
            since_s=track.held_s("interactive_waiting", 1),
            evidence={
                "batch_running": batch.running,
                "batch_blocks": batch.kv_blocks,
                "batch_share_of_pool": blocks,
                "batch_share_of_slots": slots,
                "interactive_waiting": waiting,
            },
            confidence=min(1.0, max(blocks, slots) + 0.3),
            words=f"batch crowds interactive: {batch.running} of batch hold {percent(blocks)}% of the pool"
            f" while {waiting} interactive wait",
            action=Proposal(
                name="shed",
                words="shed batch",
                effect=f"{count(batch.kv_blocks)} blocks at once for {waiting} that wait; batch stays queued",
            ),
        )


def _lacks_blocks(replica: Replica) -> bool:
    """Somebody waits for what the tenant holds; for a slot or the step's tokens it does not matter who holds
    the blocks."""
    return any(replica.waiting_reasons.get(reason, 0) for reason in ("kv", "headroom", "tenant"))


def _waited(replica: Replica) -> bool:
    oldest_s = replica.queue_wait_s.oldest
    return oldest_s is not None and oldest_s >= LEAST_WAIT_S
