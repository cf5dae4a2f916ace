"""May this replica be drained, and who of its requests goes where? Pure: facts in, an answer out."""

from collections.abc import Sequence
from dataclasses import dataclass

from infer_engine.fleet.pacing import Leaver, Room, next_moves
from infer_engine.protocol import Drain, DrainMode, ReplicaState

#: States in which a replica has a queue that can be closed.
DRAINABLE: frozenset[ReplicaState] = frozenset({"ready", "draining", "drained"})
#: Ready replicas that must stay.
MIN_READY = 1
#: Replicas that may drain at once, and when to ask again.
MAX_UNAVAILABLE = 1
RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class RunningFact:
    """One running request: the tokens it may still generate at most, and what it takes to go on elsewhere
    (None where that is not asked)."""

    id: str
    tokens_left: int
    leaver: Leaver | None = None


@dataclass(frozen=True, slots=True)
class DrainFacts:
    """The fleet as it stands, as far as a drain of ``replica`` concerns it. KV is in blocks."""

    replica: str
    state: ReplicaState
    running: Sequence[RunningFact]
    waiting: int
    #: Blocks that the waiting requests need at least.
    waiting_blocks: int
    #: What this replica generates now; None or 0 when it is not known.
    tokens_per_s: float | None
    #: Ready replicas that admit, this one not among them.
    other_ready: Sequence[str]
    others_kv_used: int
    others_kv_total: int
    fleet_kv_used: int
    fleet_kv_total: int
    #: Of the running, constrained answers that nobody else can go on with.
    bound: int = 0
    #: It has not stepped or answered for too long.
    stalled: bool = False
    #: Others that are draining now.
    others_draining: Sequence[str] = ()
    #: Those of ``other_ready`` that step and answer, as places to go on at.
    rooms: Sequence[Room] = ()
    #: What one of them prefills; None when it is not known.
    prefill_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """Why not. ``status`` is the HTTP status."""

    status: int
    code: str
    title: str
    detail: str
    field: str | None = None
    numbers: dict[str, float | None] | None = None
    #: When it may be worth asking again.
    retry_after_s: float | None = None


def judge(facts: DrainFacts, drain: Drain) -> Denied | None:
    """None when the drain may begin (or has begun: asking twice is fine)."""
    if facts.state not in DRAINABLE:
        return Denied(
            409,
            "not_ready",
            "the replica is not ready",
            f"replica {facts.replica} is {facts.state}; only a ready replica can be drained",
        )
    if drain.mode == "migrate" and not facts.rooms:
        return Denied(
            409,
            "no_other_replica",
            "there is no other replica to go on at",
            f"mode migrate moves what runs on {facts.replica} to other ready replicas, and there is none; "
            "modes wait and cancel need none",
            field="mode",
            numbers={"ready_after": float(len(facts.other_ready))},
        )
    if facts.state == "ready" and not facts.other_ready and not drain.force:
        return Denied(
            409,
            "would_break_min_ready",
            "it is the last ready replica",
            f"draining {facts.replica} would leave 0 ready replicas, at least 1 must stay; "
            "--force overrides this",
            numbers={"ready": 1.0, "ready_after": 0.0, "min_ready": 1.0},
        )
    draining = len(facts.others_draining)
    if facts.state == "ready" and draining >= MAX_UNAVAILABLE and not drain.force:
        return Denied(
            429,
            "max_unavailable",
            "another replica is draining",
            f"{', '.join(facts.others_draining)} drains; at most {MAX_UNAVAILABLE} may at once; "
            "wait for it, or --force",
            numbers={"draining": float(draining), "max_unavailable": float(MAX_UNAVAILABLE)},
            retry_after_s=RETRY_AFTER_S,
        )
    return None


def mode_of(facts: DrainFacts, drain: Drain) -> DrainMode:
    """What was asked for; without a word, migrate where another replica can take the work."""
    return drain.mode or ("migrate" if facts.rooms else "wait")


def movers(facts: DrainFacts, mode: DrainMode) -> list[tuple[Leaver, str]]:
    """Who of the running would go on elsewhere, and where, by the room that is there now."""
    if mode != "migrate":
        return []
    leavers = [each.leaver for each in facts.running if each.leaver is not None]
    return next_moves(leavers, facts.rooms, paced=False)


def seconds_to_drained(facts: DrainFacts, mode: DrainMode) -> float | None:
    """At most how long until the last running request is done or gone, at the recent rates; None when those
    are not known. Requests may stop earlier by themselves, and the rate per sequence rises as the batch
    shrinks."""
    if mode == "cancel" or not facts.running:
        return 0.0
    moves = movers(facts, mode)
    gone = {leaver.id for leaver, _ in moves}
    staying = [each for each in facts.running if each.id not in gone]
    leaving_s = _prefill_s(facts, moves)
    if not staying:
        return leaving_s
    if not facts.tokens_per_s or leaving_s is None:
        return None
    per_sequence = facts.tokens_per_s / len(facts.running)
    return max(leaving_s, max(request.tokens_left for request in staying) / per_sequence)


def _prefill_s(facts: DrainFacts, moves: Sequence[tuple[Leaver, str]]) -> float | None:
    """How long the replica that gets most computes, beside what it computes anyway."""
    if not moves:
        return 0.0
    if not facts.prefill_tokens_per_s:
        return None
    by_replica: dict[str, int] = {}
    for leaver, replica in moves:
        by_replica[replica] = by_replica.get(replica, 0) + leaver.tokens
    return max(by_replica.values()) / facts.prefill_tokens_per_s
