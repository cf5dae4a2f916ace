"""What a rule is given: the picture, and what the doctor remembers of the time before it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infer_engine.protocol import Replica, TenantUse

from infer_console.diagnosis.track import Track
from infer_console.state.picture import Picture

REPLICA_KEYS = (
    "used",
    "running",
    "waiting",
    "interactive_waiting",
    "free_ratio",
    "mixed_s",
    "decode_s",
    "mixed",
    "itl_p50",
    "itl_p99",
    "queries",
    "hits",
    "preemptions",
    "busy",
    "idle",
)
FLEET_KEYS = (
    "used",
    "waiting",
    "taken",
    "taken_tokens",
    "loop_lag_s",
    "tokenizer_queue",
    "queries",
    "hits",
    "others_waiting",
)


@dataclass(frozen=True, slots=True)
class MarkChange:
    """A replica's mark of admission moved; blocks."""

    at: float
    before: int
    after: int


@dataclass(slots=True)
class Case:
    """``tracks`` are of the replicas in the picture. ``marks`` has the last change of each replica's mark."""

    picture: Picture
    fleet: Track
    tracks: Mapping[str, Track]
    marks: Mapping[str, MarkChange] = field(default_factory=dict[str, MarkChange])

    @property
    def watched(self) -> bool:
        """Of servers that are not ours and can only be watched: nobody routes for them here."""
        return "watched" in self.picture.capabilities

    def serving(self) -> Iterator[tuple[str, Replica, Track]]:
        """Replicas that hold requests: ready ones and those that drain."""
        for name, shown in self.picture.replicas.items():
            if shown.status.state in ("ready", "draining") and name in self.tracks:
                yield name, shown.status, self.tracks[name]

    def ready(self) -> Iterator[tuple[str, Replica, Track]]:
        for name, replica, track in self.serving():
            if replica.state == "ready":
                yield name, replica, track


def interactive_waiting(replica: Replica) -> int | None:
    """Batch waits by design; where a server does not tell the tiers apart, everybody counts."""
    if replica.waiting is None:
        return None
    return max(0, replica.waiting - (replica.batch.waiting if replica.batch is not None else 0))


#: Reasons that come of a lack of blocks; those behind such a request wait for the same.
KV_REASONS = frozenset({"kv", "headroom", "behind"})


def kv_share(reasons: Mapping[str, int]) -> float:
    """Share of those that wait whose reason is a lack of blocks; 0 when none waits for blocks itself."""
    counted = sum(reasons.values())
    if not counted or not reasons.get("kv", 0) + reasons.get("headroom", 0):
        return 0.0
    return sum(count for reason, count in reasons.items() if reason in KV_REASONS) / counted


def replica_numbers(replica: Replica) -> dict[str, float | None]:
    """One look at a replica."""
    kv, step = replica.kv, replica.step
    mixed = step is not None and step.prefill_tokens > 0 and step.decode_tokens > 0
    decodes = step is not None and step.prefill_tokens == 0 and step.decode_tokens > 0
    waiting = interactive_waiting(replica)
    room = kv.free + (kv.cached or 0) if kv.free is not None else None
    return {
        "used": kv.used,
        "running": replica.running,
        "waiting": replica.waiting,
        "interactive_waiting": waiting,
        "free_ratio": room / kv.total if room is not None and kv.total else None,
        "mixed_s": step.duration_s if mixed and step is not None else None,
        "decode_s": step.duration_s if decodes and step is not None else None,
        "mixed": float(mixed) if replica.running else None,
        "itl_p50": replica.itl_s.p50,
        "itl_p99": replica.itl_s.p99,
        "queries": replica.prefix_queries_tokens,
        "hits": replica.prefix_hit_tokens,
        "preemptions": replica.preemptions,
        "busy": None if waiting is None else float(waiting >= CROWD),
        "idle": None if waiting is None else float(not replica.waiting and _has_room(replica)),
    }


#: So many that wait on one replica are a queue.
CROWD = 3


def _has_room(replica: Replica) -> bool:
    """It could take more without making anybody wait."""
    kv = replica.kv
    if kv.used is None or not kv.total or replica.running is None:
        return False
    slots = replica.max_running is None or replica.running <= replica.max_running // 2
    return slots and kv.used <= kv.total // 2


def fleet_numbers(picture: Picture) -> dict[str, float | None]:
    """One look at the fleet."""
    totals = picture.totals
    gateway = picture.fleet.gateway if picture.fleet is not None else None
    statuses = [shown.status for shown in picture.replicas.values()]
    queries = [each.prefix_queries_tokens for each in statuses if each.prefix_queries_tokens is not None]
    hits = [each.prefix_hit_tokens for each in statuses if each.prefix_hit_tokens is not None]
    used = [each.kv.used for each in statuses if each.kv.used is not None]
    return {
        "used": sum(used) if used else None,
        "waiting": totals.waiting if totals is not None else None,
        "taken": totals.taken_requests if totals is not None else None,
        "taken_tokens": totals.taken_prompt_tokens if totals is not None else None,
        "loop_lag_s": gateway.loop_lag_p99_s if gateway is not None else None,
        "tokenizer_queue": gateway.tokenizer_queue if gateway is not None else None,
        "queries": sum(queries) if queries else None,
        "hits": sum(hits) if hits else None,
        "others_waiting": _others_waiting(totals.tenants) if totals is not None else None,
    }


def _others_waiting(tenants: Sequence[TenantUse]) -> int | None:
    """Requests that wait, of all but the tenant that holds the most blocks."""
    if not tenants:
        return None
    most = max(tenants, key=lambda row: row.kv_blocks)
    return sum(row.waiting for row in tenants) - most.waiting
