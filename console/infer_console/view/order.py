"""Which items a list shows and in what order. Orders are stable: equal items keep the order of their ids."""

import dataclasses
from collections.abc import Callable, Sequence

from infer_engine.protocol import Alarm, Event, Operation, Replica, RequestRow

from infer_console.state.picture import NO_OWNER, BlockMap, Picture, ReplicaPicture
from infer_console.view.alarms import worst_alarms
from infer_console.view.audit import shown_entries
from infer_console.view.filter import compiled
from infer_console.view.findings import shown_findings
from infer_console.view.listing import listed
from infer_console.view.look import Cursor, FleetSort, Look, Pane, ScreenName

_STATE_RANK = {
    "failed": 0,
    "restarting": 1,
    "draining": 2,
    "fenced": 3,
    "stopping": 4,
    "drained": 5,
    "starting": 6,
    "ready": 7,
}
_HEALTHS = ("bad", "stalled", "ok", "idle")


def _natural(text: str) -> tuple[int, str]:
    """r2 before r10."""
    return len(text), text


def _matches(look: Look, *texts: str | None) -> bool:
    return not look.filter or compiled(look.filter).shows(*texts)


def unfiltered(look: Look) -> Look:
    """The same look without its filter."""
    return dataclasses.replace(look, filter="") if look.filter else look


def follow(
    picture: Picture, look: Look, screen: ScreenName, pane: Pane, ids: Sequence[str] | None = None
) -> Cursor:
    """A pane's cursor, brought up to date with its ids now shown."""
    cursor = look.cursor(screen, pane)
    shown = pane_ids(picture, look, screen, pane) if ids is None else ids
    cursor.follow(shown, pane_ids(picture, unfiltered(look), screen, pane) if look.filter else shown)
    return cursor


def fleet_order(picture: Picture, look: Look) -> list[ReplicaPicture]:
    """Of many replicas too: no alarm is looked for twice, nothing is formatted."""
    shown = [
        replica
        for replica in picture.replicas.values()
        if _matches(look, replica.status.id, replica.status.state, replica.status.health)
    ]
    if look.fleet_sort == "worst":
        worst = worst_alarms(picture)
        return sorted(shown, key=lambda replica: _how_bad(replica.status, worst.get(replica.status.id)))
    value = FLEET_VALUES.get(look.fleet_sort)
    if value is None:
        return sorted(shown, key=lambda replica: _natural(replica.status.id))
    return sorted(shown, key=lambda replica: (*_rank(value(replica.status)), _natural(replica.status.id)))


def _how_bad(status: Replica, alarm: Alarm | None) -> tuple[int, int, int, tuple[int, str]]:
    grave = 2 if alarm is None else 0 if alarm.severity == "critical" else 1
    sick = status.health in ("bad", "stalled")
    return grave, 0 if sick else 1, _STATE_RANK.get(status.state, 0), _natural(status.id)


def _rank(value: float | None) -> tuple[bool, float]:
    """The most first, what is unknown last."""
    return value is None, -(value or 0.0)


def _health_rank(status: Replica) -> float | None:
    return None if status.health is None else -_HEALTHS.index(status.health)


def _kv_share(status: Replica) -> float | None:
    known = status.kv.used is not None and status.kv.total
    return (status.kv.used or 0) / (status.kv.total or 1) if known else None


#: By sort order, what is largest in the replica that comes first.
FLEET_VALUES: dict[FleetSort, Callable[[Replica], float | None]] = {
    "state": lambda status: -_STATE_RANK.get(status.state, 0),
    "health": _health_rank,
    "step": lambda status: status.step.duration_s if status.step is not None else None,
    "running": lambda status: status.running,
    "waiting": lambda status: status.waiting,
    "oldest": lambda status: status.queue_wait_s.oldest,
    "qwait": lambda status: status.queue_wait_s.p99,
    "kv": _kv_share,
    "tokens": lambda status: status.tokens_per_s,
    "ttft50": lambda status: status.ttft_s.p50,
    "ttft": lambda status: status.ttft_s.p99,
    "itl50": lambda status: status.itl_s.p50,
    "itl": lambda status: status.itl_s.p99,
    "preemptions": lambda status: status.preemptions_per_min,
    "hits": lambda status: status.prefix_hit_ratio,
}


def _request_matches(look: Look, row: RequestRow) -> bool:
    return _matches(look, row.id, row.tenant, row.tier, row.phase, row.waiting_reason, row.client_id)


def roster(replica: ReplicaPicture, look: Look) -> list[RequestRow]:
    """The running requests."""
    running = [
        replica.rows[id]
        for id in replica.order
        if id in replica.rows
        and replica.rows[id].state == "running"
        and _request_matches(look, replica.rows[id])
    ]
    match look.roster_sort:
        case "batch":
            return running
        case "blocks":
            return sorted(running, key=lambda row: (-row.kv_blocks, row.id))
        case "age":
            return sorted(running, key=lambda row: (-row.age_s, row.id))
        case "generated":
            return sorted(running, key=lambda row: (-row.generated_tokens, row.id))
        case "tenant":
            return sorted(running, key=lambda row: (row.tenant, row.id))


def queue(replica: ReplicaPicture, look: Look) -> list[tuple[int, RequestRow]]:
    """The waiting requests in admission order, each with its place in the whole queue."""
    waiting = [
        replica.rows[id] for id in replica.order if id in replica.rows and replica.rows[id].state == "waiting"
    ]
    return [(place, row) for place, row in enumerate(waiting, 1) if _request_matches(look, row)]


def events(picture: Picture, look: Look, replica: str | None = None) -> list[Event]:
    """Newest first."""
    return [
        event
        for event in reversed(picture.events)
        if (replica is None or replica in (event.replica, event.to_replica))
        and event.kind not in look.hidden_kinds
        and _matches(look, event.kind, event.replica, event.request, event.tenant, event.reason)
    ]


def event_id(event: Event) -> str:
    """A server that was started again counts from one again: its number alone is not enough."""
    return f"{event.at!r}:{event.seq}"


def operations(picture: Picture, look: Look) -> list[Operation]:
    """Those under way first, and of either those that began last first."""
    shown = [
        each
        for each in picture.operations
        if _matches(look, each.id, each.kind, each.target, each.phase, each.actor, each.message)
    ]
    return sorted(shown, key=lambda each: (not under_way(each), -each.started_at))


def under_way(operation: Operation) -> bool:
    return operation.phase in ("pending", "running")


def owners_in_map(blocks: BlockMap | None) -> list[str]:
    """Who has blocks, in the order in which the map shows them first: what the map's cursor steps through."""
    if blocks is None:
        return []
    seen = dict.fromkeys(blocks.owner)
    return [blocks.owners[owner] for owner in seen if owner != NO_OWNER and owner < len(blocks.owners)]


def pane_ids(picture: Picture, look: Look, screen: ScreenName, pane: Pane) -> list[str]:
    """The ids of a pane's items, in the order shown."""
    if screen == "fleet" and pane == "replicas":
        return [replica.status.id for replica in fleet_order(picture, look)]
    if pane == "requests":
        return [item.id for item in listed(picture, look)]
    if pane == "operations":
        return [operation.id for operation in operations(picture, look)]
    if screen == "doctor":
        if pane == "findings":
            return [finding.id for finding in shown_findings(picture, look)]
        return [str(entry.number) for entry in shown_entries(picture, look)]
    if pane == "events":
        only = look.replica if screen == "replica" else None
        return [event_id(event) for event in events(picture, look, only)]
    replica = picture.replicas.get(look.replica or "")
    if replica is None:
        return []
    if pane == "roster":
        return [row.id for row in roster(replica, look)]
    if pane == "blocks":
        return owners_in_map(replica.blocks)
    return [row.id for _, row in queue(replica, look)]
