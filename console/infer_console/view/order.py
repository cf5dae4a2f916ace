"""Which items a list shows and in what order. Orders are stable: equal items keep the order of their ids."""

import dataclasses
from collections.abc import Sequence

from infer_engine.protocol import Event, Replica, RequestRow

from infer_console.state.picture import Picture, ReplicaPicture
from infer_console.view.alarms import worst_alarm
from infer_console.view.filter import compiled
from infer_console.view.look import Cursor, Look, Pane, ScreenName

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
    shown = [
        replica
        for replica in picture.replicas.values()
        if _matches(look, replica.status.id, replica.status.state, replica.status.health)
    ]
    return sorted(shown, key=lambda replica: _fleet_key(picture, look, replica.status))


def _fleet_key(picture: Picture, look: Look, status: Replica) -> tuple[float | tuple[int, str], ...]:
    unknown = float("-inf")
    match look.fleet_sort:
        case "worst":
            alarm = worst_alarm(picture, status.id)
            grave = 2 if alarm is None else 0 if alarm.severity == "critical" else 1
            sick = status.health in ("bad", "stalled")
            return (grave, 0 if sick else 1, _STATE_RANK.get(status.state, 0), _natural(status.id))
        case "waiting":
            return (-(unknown if status.waiting is None else status.waiting), _natural(status.id))
        case "kv":
            known = status.kv.used is not None and status.kv.total
            return (
                -((status.kv.used or 0) / (status.kv.total or 1) if known else unknown),
                _natural(status.id),
            )
        case "ttft":
            return (-(unknown if status.ttft_s.p99 is None else status.ttft_s.p99), _natural(status.id))
        case "id":
            return (_natural(status.id),)


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
        and _matches(look, event.kind, event.replica, event.request, event.tenant, event.reason)
    ]


def pane_ids(picture: Picture, look: Look, screen: ScreenName, pane: Pane) -> list[str]:
    """The ids of a pane's items, in the order shown."""
    if screen == "fleet" and pane == "replicas":
        return [replica.status.id for replica in fleet_order(picture, look)]
    if pane == "events":
        only = look.replica if screen == "replica" else None
        return [str(event.seq) for event in events(picture, look, only)]
    replica = picture.replicas.get(look.replica or "")
    if replica is None:
        return []
    if pane == "roster":
        return [row.id for row in roster(replica, look)]
    return [row.id for _, row in queue(replica, look)]
