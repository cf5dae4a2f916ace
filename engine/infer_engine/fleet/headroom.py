"""Moving the admission marks. ``headroom = total - limit``, in blocks; operators may give it as a
percentage."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet.generation import misfit, refuse
from infer_engine.fleet.telling import replicas_for, tell_all
from infer_engine.protocol import Effect, SetHeadroom, Tier
from infer_engine.replica.handle import ReplicaHandle


@dataclass(frozen=True, slots=True)
class Move:
    """One mark of one replica, in blocks."""

    handle: ReplicaHandle
    total: int
    old_limit: int
    new_limit: int


def mark_name(tier: Tier) -> str:
    return "admit_limit" if tier == "interactive" else "batch_limit"


def moves(handles: Mapping[str, ReplicaHandle], command: SetHeadroom) -> list[Move]:
    """What the command moves. Refusal naming the field when it does not fit, or when no replica is there to
    obey."""
    _check(command)
    known = replicas_for(handles, command.replica, "its KV pool is")
    return [_move(handle, command) for handle in known]


def _move(handle: ReplicaHandle, command: SetHeadroom) -> Move:
    """One that loads again is told its mark when it has: until then its old one is what it was told last."""
    if handle.info is None:
        raise RuntimeError(f"replica {handle.id} has no pool yet")
    total, name = handle.info.kv_blocks, mark_name(command.tier)
    if command.blocks is not None:
        blocks = command.blocks
    else:  # rounded as at the start of a replica, where the limit is given as a share
        blocks = total - int(total * (100.0 - (command.percent or 0.0)) / 100 + 1e-9)
    if not 0 <= blocks <= total:
        raise misfit(
            "blocks",
            f"must be from 0 to {total} (the pool of {handle.id}), got {blocks}",
            numbers={"given": blocks, "total": total},
        )
    old_limit = handle.expected_limits[name]
    return Move(handle, total, old_limit, total - blocks)


def _check(command: SetHeadroom) -> None:
    if (command.percent is None) == (command.blocks is None):
        raise refuse(
            422,
            "invalid_field",
            "The headroom is given twice or not at all.",
            detail="give exactly one of percent and blocks",
            field="percent",
        )
    if command.percent is not None and not (math.isfinite(command.percent) and 0 <= command.percent <= 100):
        raise misfit("percent", f"must be from 0 to 100, got {command.percent!r}")


def predict(handles: Mapping[str, ReplicaHandle], command: SetHeadroom) -> Effect:
    """What moving the mark will do, from each replica's newest observation."""
    planned = moves(handles, command)
    summary: list[str] = []
    warnings: list[str] = []
    admitted = 0
    for move in planned:
        summary.append(_line(move, command.tier))
        if move.handle.ready is None:
            warnings.append(f"{move.handle.id} is {move.handle.state}: it gets the mark once it has loaded")
            continue
        admits = _would_admit(move, command.tier)
        admitted += admits
        if admits:
            summary.append(f"{move.handle.id}: about {admits} waiting now will be admitted")
        used = move.handle.kv_used or 0
        if used > move.new_limit:
            warnings.append(
                f"{move.handle.id}: admission stays closed until fewer than {move.new_limit:,} blocks are"
                f" used (now {used}); nobody is evicted"
            )
        other = move.handle.limits["admit_limit"]
        if command.tier == "batch" and move.new_limit > other:
            warnings.append(
                f"{move.handle.id}: batch is never admitted beyond the interactive mark ({other:,} blocks)"
            )
    rises = {move.new_limit - move.old_limit for move in planned} - {0}
    if not rises:
        summary.append("the mark is there already: nothing will change")
    if min(rises, default=0) < 0:
        summary.append("more headroom admits fewer: more room for running sequences to grow, longer queues")
    if max(rises, default=0) > 0:
        summary.append("less headroom admits more: shorter queues, preemptions become likelier")
    if command.replica is None:
        warnings += [
            f"{handle.id} is {handle.state} and has never loaded: its mark does not move"
            for handle in handles.values()
            if handle.info is None
        ]
    return Effect(summary=summary, numbers=_numbers(planned, admitted), warnings=warnings)


async def apply(handles: Mapping[str, ReplicaHandle], command: SetHeadroom) -> dict[str, tuple[int, int]]:
    """Move the marks; old and new limit by replica. Refusal when a replica did not obey, saying which did."""
    planned = moves(handles, command)
    name = mark_name(command.tier)
    answers = await tell_all(
        {move.handle: {name: move.new_limit} for move in planned},
        thing="its mark",
        reverts=command.revert_after_s is not None,
    )
    done: dict[str, tuple[int, int]] = {}
    for move in planned:
        answer = answers[move.handle.id]
        old, new = (
            (move.old_limit, move.new_limit) if answer is None else (answer.old[name], answer.new[name])
        )
        done[move.handle.id] = (old, new)
    return done


def _line(move: Move, tier: Tier) -> str:
    old, new = move.total - move.old_limit, move.total - move.new_limit
    if old == new:
        return f"{move.handle.id}: headroom is {new:,} blocks ({_share(new, move.total)}) already: no change"
    return (
        f"{move.handle.id}: headroom {old:,} → {new:,} blocks "
        f"({_share(old, move.total)} → {_share(new, move.total)}); "
        f"{tier} requests are admitted up to {move.new_limit:,} of {move.total:,} blocks"
    )


def _share(blocks: int, total: int) -> str:
    return f"{blocks / total:.0%}" if total else "–"


def _would_admit(move: Move, tier: Tier) -> int:
    """Requests blocked by the mark alone that fit under the new one, in their order."""
    observation = move.handle.observation
    if observation is None or move.new_limit <= move.old_limit:
        return 0
    room = min(observation.kv_free + observation.kv_cached, move.new_limit - observation.kv_used)
    slots = (observation.slots or observation.max_running) - sum(
        row.state == "running" for row in observation.rows
    )
    admits = 0
    for row in observation.rows:
        if row.state != "waiting" or row.waiting_reason not in ("headroom", "behind"):
            continue
        if row.needs_blocks is None or row.needs_blocks > room or admits >= slots:
            break
        room -= row.needs_blocks
        admits += 1
    return admits


def _numbers(planned: list[Move], admitted: int) -> dict[str, float | None]:
    """Sums over the replicas concerned."""
    return {
        "total": float(sum(move.total for move in planned)),
        "used": float(sum(move.handle.kv_used or 0 for move in planned)),
        "old_limit": float(sum(move.old_limit for move in planned)),
        "new_limit": float(sum(move.new_limit for move in planned)),
        "old_headroom": float(sum(move.total - move.old_limit for move in planned)),
        "new_headroom": float(sum(move.total - move.new_limit for move in planned)),
        "admitted_now": float(admitted),
    }
