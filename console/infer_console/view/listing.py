"""Every request of the fleet as one list: those that wait, those that run, and those that ended lately."""

from typing import Literal, NamedTuple

from infer_engine.protocol import Event, RequestRow

from infer_console.state.picture import Picture
from infer_console.view.filter import compiled
from infer_console.view.look import Look

#: For how long, and how many, ended requests stay in the list.
ENDED_S = 300.0
MAX_ENDED = 200

State = Literal["waiting", "running", "ended"]
_RANK: dict[State, int] = {"waiting": 0, "running": 1, "ended": 2}


class Item(NamedTuple):
    """One request. While it lives it has a row; once it ended the row that the server keeps, the event that
    ended it, or both."""

    id: str
    state: State
    tenant: str | None
    replica: str | None
    row: RequestRow | None = None
    event: Event | None = None

    @property
    def ended_at(self) -> float:
        """Of one that has ended."""
        if self.row is not None and self.row.ended_at is not None:
            return self.row.ended_at
        return self.event.at if self.event is not None else 0.0


class Counts(NamedTuple):
    waiting: int
    running: int
    ended: int


def live_rows(picture: Picture) -> list[RequestRow]:
    """As the server listed them; where nobody asked it to, those of the rosters that are known."""
    if picture.listing is not None:
        return list(picture.listing.rows)
    known = [row for replica in picture.replicas.values() for row in replica.rows.values()]
    return [*known, *picture.held]


def every_item(picture: Picture) -> list[Item]:
    """In no order. What ended is not listed twice: a list may be older than the event."""
    ended = _ended(picture)
    items = [
        Item(row.id, "running" if row.state == "running" else "waiting", row.tenant, row.replica, row)
        for row in live_rows(picture)
        if row.state != "finished" and row.id not in ended
    ]
    return [*items, *ended.values()]


def _ended(picture: Picture) -> dict[str, Item]:
    """The latest ones. What ended before the console came is known from the rows that the server keeps alone,
    who was turned away at the door, and has ended, too, from the events alone."""
    since, items = picture.at - ENDED_S, dict[str, Item]()
    rows = {row.id: row for row in (picture.listing.ended if picture.listing is not None else ())}
    for event in reversed(picture.events):
        if len(items) >= MAX_ENDED or event.at < since:
            break
        if event.kind in ("finish", "reject") and event.request is not None and event.request not in items:
            row = rows.get(event.request)
            items[event.request] = Item(event.request, "ended", event.tenant, event.replica, row, event)
    for row in rows.values():
        if row.id not in items and row.ended_at is not None and row.ended_at >= since:
            items[row.id] = Item(row.id, "ended", row.tenant, row.replica, row)
    latest = sorted(items.values(), key=lambda item: -item.ended_at)[:MAX_ENDED]
    return {item.id: item for item in latest}


def counts(items: list[Item]) -> Counts:
    states = [item.state for item in items]
    return Counts(*(states.count(state) for state in ("waiting", "running", "ended")))


def listed(picture: Picture, look: Look) -> list[Item]:
    """Those that the look shows, in its order."""
    items = [item for item in every_item(picture) if _shows(look, item)]
    return sorted(items, key=lambda item: _key(look, item))


def _shows(look: Look, item: Item) -> bool:
    if look.shown not in ("all", item.state):
        return False
    if not look.filter:
        return True
    row, event = item.row, item.event
    texts = (row.tier, row.phase, row.waiting_reason, row.behind, row.client_id) if row is not None else ()
    how = (event.kind, event.reason) if event is not None else (row.finish_reason,) if row is not None else ()
    return compiled(look.filter).shows(item.id, item.state, item.tenant, item.replica, *texts, *how)


def _key(look: Look, item: Item) -> tuple[float | str, ...]:
    """What ended comes last in every order, the latest first; what is unknown comes after what is known."""
    row = item.row
    if row is None or item.state == "ended":
        return (2.0, -item.ended_at, item.id)
    match look.request_sort:
        case "state":
            return (_RANK[item.state], -row.age_s, item.id)
        case "age":
            return (0.0, -row.age_s, item.id)
        case "kv":
            return (0.0, -row.kv_blocks, item.id)
        case "generated":
            return (0.0, -row.generated_tokens, item.id)
        case "ttft":
            return (0.0, -(row.ttft_s if row.ttft_s is not None else row.age_s), item.id)
        case "tenant":
            return (0.0, row.tenant, item.id)
        case "replica":
            name = row.replica or ""
            return (0.0, float(len(name)), name, item.id)
