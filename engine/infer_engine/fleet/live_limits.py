"""Changing the live limits of replicas: what it will do, and doing it. All that a command gives is checked
for every replica before any of them is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from infer_engine.core.limits import LIMIT_NAMES, Limits
from infer_engine.core.limits import LimitsError as LimitsMisfitError
from infer_engine.fleet.generation import misfit, refuse
from infer_engine.fleet.limits_effect import Load, meaning
from infer_engine.fleet.telling import replicas_for, tell_all
from infer_engine.protocol import ChangeLimits, Effect
from infer_engine.replica.handle import ReplicaHandle

#: By replica, by limit: before and after.
Moves = dict[str, dict[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class _Change:
    handle: ReplicaHandle
    before: dict[str, int]
    running: int

    def after(self, limits: dict[str, int]) -> dict[str, tuple[int, int]]:
        return {name: (self.before[name], value) for name, value in limits.items()}


def predict(handles: Mapping[str, ReplicaHandle], command: ChangeLimits) -> Effect:
    """What the command will change, from what each replica said last. Refusal as ``apply``."""
    changes = _checked(handles, command)
    summary = [
        f"{change.handle.id}: {name} {old} → {new}"
        if old != new
        else f"{change.handle.id}: {name} is {new} already"
        for change in changes
        for name, (old, new) in change.after(command.limits).items()
    ]
    # Of one replica more is told; of several it would be too much to read.
    if len(changes) == 1:
        summary += meaning(_load(changes[0]), changes[0].before, command.limits)
    warnings: list[str] = []
    for change in changes:
        most = command.limits.get("max_running")
        if most is not None and change.running > most:
            warnings.append(
                f"{change.handle.id}: {change.running} run now; nobody is evicted, and none is admitted "
                f"until fewer than {most} do"
            )
        if change.handle.ready is None:
            warnings.append(f"{change.handle.id} is {change.handle.state}: it gets them once it has loaded")
    numbers = {name: float(value) for name, value in command.limits.items()}
    return Effect(summary=summary, numbers=dict(numbers), warnings=warnings)


def _load(change: _Change) -> Load:
    observation, times_s = change.handle.observation, change.handle.step_times_s
    rows = observation.rows if observation is not None else []
    waiting = observation.waiting if observation is not None else None
    return Load(
        running=change.running,
        decoding=sum(row.state == "running" and row.phase == "decode" for row in rows),
        waiting=sum(row.state == "waiting" for row in rows) if waiting is None else waiting,
        longest_step_s=max(times_s, default=None),
    )


def planned(handles: Mapping[str, ReplicaHandle], command: ChangeLimits) -> Moves:
    """What ``apply`` will move, from what to what. Refusal as there."""
    return {each.handle.id: each.after(command.limits) for each in _checked(handles, command)}


async def apply(handles: Mapping[str, ReplicaHandle], command: ChangeLimits) -> Moves:
    """Old and new values of each replica. Refusal when the values do not fit one of them (then none was told
    anything), or when one did not obey."""
    changes = _checked(handles, command)
    answers = await tell_all(
        {change.handle: dict(command.limits) for change in changes},
        thing="what it lives by",
        reverts=command.revert_after_s is not None,
    )
    moves: Moves = {}
    for change in changes:
        answer = answers[change.handle.id]
        moves[change.handle.id] = (
            change.after(command.limits)
            if answer is None
            else {name: (answer.old[name], answer.new[name]) for name in command.limits}
        )
    return moves


def misfits(handle: ReplicaHandle, limits: Mapping[str, int]) -> str | None:
    """Why the replica would not have these beside its others; None where it would, or has yet to load for the
    first time."""
    if handle.info is None:
        return None
    if beyond := _beyond_its_slots(handle, limits):
        return beyond
    try:
        Limits(**cast("Any", {**handle.expected_limits, **limits})).checked(handle.info.kv_blocks, 0)
    except LimitsMisfitError as error:
        return f"{handle.id}: {error}"
    return None


def _beyond_its_slots(handle: ReplicaHandle, limits: Mapping[str, int]) -> str | None:
    """What somebody else's server tells of itself is the most: who is sent there beyond it waits inside it,
    where nobody sees why."""
    info, asked = handle.info, limits.get("max_running")
    if info is None or info.most_running is None or asked is None or asked <= info.most_running:
        return None
    most, who = info.most_running, info.foreign or "its server"
    return (
        f"{handle.id}: max_running: {asked} given, 1 to {most} allowed ({who} runs {most} at once by its own"
        " settings: more would wait inside it)"
    )


def _checked(handles: Mapping[str, ReplicaHandle], command: ChangeLimits) -> list[_Change]:
    if not command.limits:
        raise refuse(
            422,
            "invalid_field",
            "limits is empty.",
            f"give at least one of {', '.join(LIMIT_NAMES)}",
            field="limits",
        )
    unknown = sorted(set(command.limits) - set(LIMIT_NAMES))
    if unknown:
        raise misfit(unknown[0], f"there are {', '.join(LIMIT_NAMES)}")
    known = replicas_for(handles, command.replica, "its limits are")
    return [_check_one(handle, command) for handle in known]


def _check_one(handle: ReplicaHandle, command: ChangeLimits) -> _Change:
    if handle.info is None:
        raise RuntimeError(f"replica {handle.id} has not loaded yet")
    before = handle.expected_limits
    missing = [name for name in command.limits if name not in before]
    if missing:
        raise refuse(409, "not_ready", f"{handle.id} does not tell its {missing[0]}.", field=missing[0])
    observation = handle.observation
    running = sum(row.state == "running" for row in observation.rows) if observation else 0
    try:
        Limits(**cast("Any", {**before, **command.limits})).checked(handle.info.kv_blocks, running)
    except LimitsMisfitError as error:
        raise misfit(error.problems[0].split(":")[0], f"{handle.id}: {error}") from None
    if beyond := _beyond_its_slots(handle, command.limits):
        raise misfit("max_running", beyond)
    return _Change(handle, before, running)
