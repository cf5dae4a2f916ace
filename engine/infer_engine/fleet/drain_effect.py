"""What a drain will do, as numbers and in the operator's words. Pure: facts in, an answer out."""

from collections.abc import Sequence
from dataclasses import dataclass

from infer_engine.fleet.drain import DrainFacts, mode_of, movers, seconds_to_drained
from infer_engine.fleet.pacing import Leaver
from infer_engine.protocol import Drain, DrainMode, Effect

#: Use of the remaining replicas' KV from which they will be short of it.
NEARLY_FULL_RATIO = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foreseen:
    """Requests, where nothing else is said."""

    mode: DrainMode
    #: Nobody asked for that mode.
    by_itself: bool
    running: int
    #: Of those that run here: ended, gone on with elsewhere, neither.
    cancelled: int
    moves: Sequence[tuple[Leaver, str]]
    staying: int
    #: Of those that wait here: gone elsewhere, or held until somebody is ready.
    moved: int
    held: int
    #: Of those that move: about how many find no room where they go.
    waits_on: int
    seconds: float | None
    #: KV of the remaining replicas then.
    others_ratio: float | None

    @property
    def recompute_tokens(self) -> int:
        return sum(leaver.tokens for leaver, _ in self.moves)


def predict(facts: DrainFacts, drain: Drain) -> Effect:
    foreseen = _foresee(facts, drain)
    return Effect(
        summary=_summary(facts, foreseen),
        numbers={
            "running": float(foreseen.running),
            "waiting": float(facts.waiting),
            "moved": float(foreseen.moved),
            "migrated": float(len(foreseen.moves)),
            "recompute_tokens": float(foreseen.recompute_tokens),
            "staying": float(foreseen.staying),
            "held": float(foreseen.held),
            "cancelled": float(foreseen.cancelled),
            "seconds_to_drained": foreseen.seconds,
            "ready_after": float(len(facts.other_ready)),
            "fleet_kv_ratio": _ratio(facts.fleet_kv_used, facts.fleet_kv_total),
            "fleet_kv_ratio_after": foreseen.others_ratio,
        },
        warnings=_warnings(facts, foreseen),
    )


def _foresee(facts: DrainFacts, drain: Drain) -> _Foreseen:
    mode = mode_of(facts, drain)
    moves = movers(facts, mode)
    running = len(facts.running)
    cancelled = running if mode == "cancel" else 0
    moved = facts.waiting if facts.other_ready else 0
    coming_blocks = (facts.waiting_blocks if moved else 0) + sum(leaver.blocks for leaver, _ in moves)
    return _Foreseen(
        mode=mode,
        by_itself=drain.mode is None,
        running=running,
        cancelled=cancelled,
        moves=moves,
        staying=running - cancelled - len(moves),
        moved=moved,
        held=facts.waiting - moved,
        waits_on=_waits_on(facts) if moved else 0,
        seconds=seconds_to_drained(facts, mode),
        others_ratio=_ratio(facts.others_kv_used + coming_blocks, facts.others_kv_total),
    )


def _summary(facts: DrainFacts, foreseen: _Foreseen) -> list[str]:
    auto = ", which auto chose" if foreseen.by_itself else ""
    lines = [
        f"no new requests reach {facts.replica} (mode {foreseen.mode}{auto})",
        *_of_the_running(facts, foreseen),
    ]
    if foreseen.moved:
        others = ", ".join(facts.other_ready)
        lines.append(f"{_requests(foreseen.moved)} waiting here will move to {others}")
    if foreseen.held:
        lines.append(f"{_requests(foreseen.held)} waiting here will be held: no other replica is ready")
    if foreseen.waits_on:
        lines.append(
            "the remaining replicas have no room for all: "
            f"about {_requests(foreseen.waits_on)} will wait there"
        )
    elif foreseen.others_ratio is not None:
        lines.append(f"KV use of the remaining replicas: about {foreseen.others_ratio:.0%}")
    return lines


def _of_the_running(facts: DrainFacts, foreseen: _Foreseen) -> list[str]:
    mode, running, moves, staying = foreseen.mode, foreseen.running, foreseen.moves, foreseen.staying
    if not running:
        return ["nothing runs here"]
    if mode == "cancel":
        return [f"{_requests(running)} running here will be cancelled"]
    seconds = foreseen.seconds
    until = "" if seconds is None else f" (at most about {max(1.0, seconds):.0f} s)"
    lines: list[str] = []
    if moves:
        to = ", ".join(sorted({replica for _, replica in moves}))
        lines.append(
            f"{_requests(len(moves))} running here will go on at {to}{'' if staying else until}: "
            f"{foreseen.recompute_tokens:,} tokens are computed again there"
        )
    if mode == "migrate" and staying:
        lines.append(f"{_requests(staying)} running here will wait here for room elsewhere, or finish{until}")
        if facts.bound:
            lines.append(
                f"{facts.bound} of them until {'it ends' if facts.bound == 1 else 'they end'}: no other "
                "replica can go on within what the answer must match"
            )
    elif mode != "migrate":
        lines.append(f"{_requests(running)} running here will finish{until}")
    return lines


def _warnings(facts: DrainFacts, foreseen: _Foreseen) -> list[str]:
    warnings: list[str] = []
    if facts.state in ("draining", "drained"):
        warnings.append(f"{facts.replica} is already {facts.state}")
    if facts.stalled:
        warnings.append(
            f"{facts.replica} is stalled: "
            + ("nothing is cancelled" if foreseen.mode == "cancel" else "nothing finishes")
            + " and nothing moves before it answers or its process ends"
        )
    if not facts.other_ready:
        warnings.append("no ready replica will be left: new requests will be held until one returns")
    elif foreseen.others_ratio is not None and foreseen.others_ratio > NEARLY_FULL_RATIO:
        warnings.append("the remaining replicas will be nearly full: expect waiting and preemptions")
    return warnings


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
