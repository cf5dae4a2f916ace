"""What a server begins with: its fleet, replicas and tenants wanted as they were when it was left, and what a
replica that comes later is wanted to be."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infer_engine.fleet.spec_file import SpecFile
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.protocol import TenantLimits
from infer_engine.replica.handle import ReplicaHandle

_NUMBERED = re.compile(r"r(\d{1,9})")


@dataclass(slots=True)
class Wanted:
    """Of the fleet as a whole."""

    replicas: int
    shed: bool = False
    next_number: int = 0

    def new_id(self) -> str:
        self.next_number += 1
        return f"r{self.next_number - 1}"


@dataclass(frozen=True, slots=True)
class Start:
    """What a server begins with."""

    ids: list[str]
    wanted: Wanted
    known: SpecFile | None


def starting(configured: int, known: SpecFile | None, *, fixed: bool = False) -> Start:
    """As it was left. A number of replicas other than that of the last start is a new wish (a ``fixed`` one
    always is): then there are so many, and those of them that were known before are as they were."""
    ids = [f"r{number}" for number in range(configured)]
    if known is None:
        return Start(ids, Wanted(configured, next_number=configured), None)
    wanted = Wanted(configured, known.fleet.shed, known.next_number)
    if known.configured == configured and not fixed:
        ids, wanted.replicas = list(known.replicas), known.fleet.replicas
    numbers = [
        int(found.group(1)) + 1 for each in (*ids, *known.joined) if (found := _NUMBERED.fullmatch(each))
    ]
    wanted.next_number = max([wanted.next_number, *numbers])
    return Start(ids, wanted, known)


def restore(start: Start, handles: Mapping[str, ReplicaHandle], desk: TenantDesk) -> None:
    """Have replicas and tenants wanted as they were."""
    if start.known is None:
        return
    for name, tenant in start.known.tenants.items():
        desk.put(name, tenant.limits)
    for handle in handles.values():
        written = start.known.replicas.get(handle.id) or start.known.joined.get(handle.id)
        if written is not None:
            handle.cordoned, handle.fenced = written.spec.cordoned, written.spec.fenced
            handle.wanted_limits = dict(written.spec.limits)
        handle.shed = start.wanted.shed
        prime_tenants(handle, desk)


def prime_tenants(handle: ReplicaHandle, desk: TenantDesk) -> None:
    """A replica that has never loaded is told the tenants' limits when it has."""
    if desk.default != TenantLimits():
        handle.wanted_limits["tenant_default"] = desk.default
    if desk.named:
        handle.wanted_limits["tenants"] = dict(desk.named)


def common_limits(handles: Sequence[ReplicaHandle]) -> dict[str, int]:
    """What was set alike on all of them: a wish about the fleet, which holds for those who come later too."""
    if not handles:
        return {}
    first, *rest = (each.wanted_limits for each in handles)
    return {
        name: value
        for name, value in first.items()
        if isinstance(value, int) and all(each.get(name) == value for each in rest)
    }
