"""May this replica be drained, and what will it do? Pure: facts in, an answer out."""

from collections.abc import Sequence
from dataclasses import dataclass

from infer_engine.fleet.pacing import Leaver, Room, next_moves
from infer_engine.protocol import Drain, DrainMode, Effect, ReplicaState

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


def predict(facts: DrainFacts, drain: Drain) -> Effect:
    """What the drain will do, in the operator's words and as numbers."""
    mode = mode_of(facts, drain)
    running = len(facts.running)
    cancelled = running if mode == "cancel" else 0
    moved = facts.waiting if facts.other_ready else 0
    held = facts.waiting - moved
    seconds = seconds_to_drained(facts, mode)
    ratio_now = _ratio(facts.fleet_kv_used, facts.fleet_kv_total)
    moves = movers(facts, mode)
    redo_tokens = sum(leaver.tokens for leaver, _ in moves)
    staying = running - cancelled - len(moves)
    coming_blocks = (facts.waiting_blocks if moved else 0) + sum(leaver.blocks for leaver, _ in moves)
    ratio_after = _ratio(facts.others_kv_used + coming_blocks, facts.others_kv_total)

    summary = [f"no new requests reach {facts.replica} (mode {mode})"]
    if mode == "cancel":
        summary.append(f"{_requests(running)} running here will be cancelled")
    else:
        until = "" if seconds is None or not running else f" (at most about {max(1.0, seconds):.0f} s)"
        if moves:
            to = ", ".join(sorted({replica for _, replica in moves}))
            summary.append(
                f"{_requests(len(moves))} running here will go on at {to}{'' if staying else until}: "
                f"{redo_tokens:,} tokens are computed again there"
            )
        if mode == "migrate" and staying:
            summary.append(
                f"{_requests(staying)} running here will wait here for room elsewhere, or finish{until}"
            )
            if facts.bound:
                summary.append(
                    f"{facts.bound} of them until {'it ends' if facts.bound == 1 else 'they end'}: no other "
                    "replica can go on within what the answer must match"
                )
        elif mode != "migrate" or not running:
            summary.append(f"{_requests(running)} running here will finish{until}")
    if moved:
        summary.append(f"{_requests(moved)} waiting here will move to {', '.join(facts.other_ready)}")
    if held:
        summary.append(f"{_requests(held)} waiting here will be held: no other replica is ready")
    waits_on = _waits_on(facts) if moved else 0
    if waits_on:
        summary.append(
            f"the remaining replicas have no room for all: about {_requests(waits_on)} will wait there"
        )
    elif ratio_after is not None:
        summary.append(f"KV use of the remaining replicas: about {ratio_after:.0%}")

    warnings: list[str] = []
    if facts.state in ("draining", "drained"):
        warnings.append(f"{facts.replica} is already {facts.state}")
    if facts.stalled:
        warnings.append(
            f"{facts.replica} is stalled: "
            + ("nothing is cancelled" if mode == "cancel" else "nothing finishes")
            + " and nothing moves before it answers or its process ends"
        )
    if not facts.other_ready:
        warnings.append("no ready replica will be left: new requests will be held until one returns")
    elif ratio_after is not None and ratio_after > 0.9:
        warnings.append("the remaining replicas will be nearly full: expect waiting and preemptions")
    return Effect(
        summary=summary,
        numbers={
            "running": float(running),
            "waiting": float(facts.waiting),
            "moved": float(moved),
            "migrated": float(len(moves)),
            "recompute_tokens": float(redo_tokens),
            "staying": float(staying),
            "held": float(held),
            "cancelled": float(cancelled),
            "seconds_to_drained": seconds,
            "ready_after": float(len(facts.other_ready)),
            "fleet_kv_ratio": ratio_now,
            "fleet_kv_ratio_after": ratio_after,
        },
        warnings=warnings,
    )


def _waits_on(facts: DrainFacts) -> int:
    """About how many of the requests that move find no room where they go, all being alike."""
    room = max(0, facts.others_kv_total - facts.others_kv_used)
    if not facts.others_kv_total or not facts.waiting or facts.waiting_blocks <= room:
        return 0
    return facts.waiting - room * facts.waiting // facts.waiting_blocks


def _ratio(used: int, total: int) -> float | None:
    return used / total if total else None


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
