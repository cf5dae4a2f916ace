"""What a command makes of the specs: the model that the real ones are held to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infer_engine.fleet.fencing import NO_REASON
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.specs import Spec
from infer_engine.protocol import EVERYONE, FleetSpec, ReplicaSpec, TenantLimits
from msgspec import structs


@dataclass(slots=True)
class Reverts:
    """What timed changes may put back, by target and (of replicas) by limit."""

    limits: dict[tuple[str, str], set[int | None]] = field(
        default_factory=dict[tuple[str, str], set[int | None]]
    )
    tenants: dict[str, list[TenantLimits | None]] = field(
        default_factory=dict[str, list[TenantLimits | None]]
    )

    def concern(self, target: str) -> bool:
        """Whether something of it may be taken back."""
        return target in self.tenants or any(key[0] == target for key in self.limits)

    def explain(self, target: str, before: Spec | None, after: Spec | None) -> bool:
        """Whether that is somebody's change being taken back."""
        if target.startswith("tenant:"):
            return after in self.tenants.get(target, [])
        if not (isinstance(before, ReplicaSpec) and isinstance(after, ReplicaSpec)):
            return False
        if (before.cordoned, before.fenced) != (after.cordoned, after.fenced):
            return False
        return all(
            before.limits.get(name) == after.limits.get(name)
            or after.limits.get(name) in self.limits.get((target, name), ())
            for name in before.limits.keys() | after.limits.keys()
        )


def wished(
    verb: str, target: str, command: Any, before: Mapping[str, Spec | None], fleet: Fleet, reverts: Reverts
) -> dict[str, Spec | None]:
    """The specs that ``verb`` makes different; those of ``before`` otherwise."""
    replica = before.get(f"replica:{target}")
    if isinstance(replica, ReplicaSpec):
        match verb:
            case "drain":
                return {f"replica:{target}": structs.replace(replica, cordoned=True)}
            case "undrain":
                return {f"replica:{target}": structs.replace(replica, cordoned=False)}
            case "fence":
                why = replica.fenced or command.reason or NO_REASON
                return {f"replica:{target}": structs.replace(replica, fenced=why)}
            case "release":
                return {f"replica:{target}": structs.replace(replica, fenced=None)}
            case _:
                pass
    now = before["fleet"]
    assert isinstance(now, FleetSpec)
    match verb:
        case "scale":
            return {"fleet": structs.replace(now, replicas=command.replicas)}
        case "shed":
            return {"fleet": structs.replace(now, shed=command.on)}
        case "headroom":
            name = "admit_limit" if command.tier == "interactive" else "batch_limit"
            return _limits(before, fleet, command, reverts, lambda total: {name: total - command.blocks})
        case "limits":
            return _limits(before, fleet, command, reverts, lambda _: command.limits)
        case "tenant":
            return _tenant(target, before, command, reverts)
        case _:
            return {}


def _limits(
    before: Mapping[str, Spec | None], fleet: Fleet, command: Any, reverts: Reverts, wanted: Any
) -> dict[str, Spec | None]:
    after: dict[str, Spec | None] = {}
    for handle in fleet.members.handles.values():
        if command.replica not in (None, handle.id) or handle.info is None:
            continue
        values: dict[str, int] = wanted(handle.info.kv_blocks)
        target = f"replica:{handle.id}"
        spec = before.get(target)
        for name in values:
            # Taken back in time, or because the replica would not have it after all.
            old = {handle.limits.get(name), handle.first_limits.get(name)}
            if isinstance(spec, ReplicaSpec):
                old.add(spec.limits.get(name))
            if command.revert_after_s is not None:
                old.add(values[name])  # it stays where the replica will not have it taken back
            reverts.limits.setdefault((target, name), set()).update(old)
        if isinstance(spec, ReplicaSpec):  # else it is on its way out, and may yet stay
            after[target] = structs.replace(spec, limits={**spec.limits, **values})
    return after


def _tenant(
    name: str, before: Mapping[str, Spec | None], command: Any, reverts: Reverts
) -> dict[str, Spec | None]:
    target = f"tenant:{name}"
    default, own = before[f"tenant:{EVERYONE}"], before[target]
    assert isinstance(default, TenantLimits)
    if command.revert_after_s is not None:
        reverts.tenants.setdefault(target, []).append(own if isinstance(own, TenantLimits) else None)
    if command.forget:
        return {target: TenantLimits() if name == EVERYONE else None}
    return {target: structs.replace(own if isinstance(own, TenantLimits) else default, **command.limits)}
