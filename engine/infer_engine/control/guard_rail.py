"""When test traffic has to go: as soon as real users suffer from it."""

from collections.abc import Iterable

from infer_engine.protocol import Replica, RequestRow

#: Real requests suffer when they wait this long ...
SUFFER_WAIT_S = 5.0
#: ... on a replica that uses this share of what admission may use.
SUFFER_KV_RATIO = 0.95


def suffering(waiting: Iterable[RequestRow], replicas: Iterable[Replica]) -> str | None:
    """Why test traffic has to stop, in words; None while real requests fare well. They suffer when one has
    waited too long for memory on a full replica, or for a place in its batch."""
    full = {replica.id for replica in replicas if _is_full(replica)}
    for row in waiting:
        if row.synthetic or row.queue_wait_s is None or row.queue_wait_s <= SUFFER_WAIT_S:
            continue
        if row.replica in full:
            return f"guard rail: {row.id} has waited {row.queue_wait_s:.0f} s for KV memory on {row.replica}"
        if row.waiting_reason == "slots":
            return f"guard rail: {row.id} has waited {row.queue_wait_s:.0f} s for a place on {row.replica}"
    return None


def _is_full(replica: Replica) -> bool:
    used, usable = replica.kv.used, replica.kv.admit_limit or replica.kv.total
    return used is not None and usable is not None and used > SUFFER_KV_RATIO * usable
