"""Changes that go back by themselves after a while: which are pending, and putting them back.

They are written down with the specs that they are about, so that a server that ends meanwhile does not make
them last: whoever is server when one is due puts it back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from infer_engine.fleet import headroom, live_limits, tenant_limits
from infer_engine.fleet.generation import refuse
from infer_engine.fleet.live_limits import Moves
from infer_engine.fleet.spec_file import PendingRevert
from infer_engine.fleet.telling import tell_all
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.protocol import ChangeLimits, ChangeTenant, SetHeadroom, TenantLimits
from infer_engine.replica.handle import ReplicaHandle


@dataclass(slots=True)
class Reverts:
    handles: Mapping[str, ReplicaHandle]
    desk: TenantDesk
    pending: dict[str, PendingRevert] = field(default_factory=dict[str, PendingRevert])
    _count: int = 0

    def begin(self, known: Mapping[str, PendingRevert]) -> None:
        """With what a server before this one left."""
        self.pending = dict(known)
        self._count = max((int(key) for key in known if key.isdigit()), default=0)

    # --- what a change will move, so that it can be pending before it takes effect -------------------------

    def of_headroom(self, command: SetHeadroom) -> Moves:
        """Refusal as the change itself, here and below."""
        name = headroom.mark_name(command.tier)
        planned = headroom.moves(self.handles, command)
        return {each.handle.id: {name: (each.old_limit, each.new_limit)} for each in planned}

    def of_limits(self, command: ChangeLimits) -> Moves:
        return live_limits.planned(self.handles, command)

    def of_tenant(
        self, tenant: str, command: ChangeTenant
    ) -> tuple[TenantLimits | None, TenantLimits | None]:
        return tenant_limits.planned(self.desk, tenant, command)

    # --- which are pending ---------------------------------------------------------------------------------

    def add(self, pending: PendingRevert) -> str:
        """The key under which it is pending."""
        self._count += 1
        key = str(self._count)
        self.pending[key] = pending
        return key

    def drop(self, key: str) -> None:
        self.pending.pop(key, None)

    def limits_changed(self, replicas: Iterable[str], names: Iterable[str]) -> list[str]:
        """Somebody changes these limits of these replicas again, and does not want them moved back: the keys
        of those that this concerns. One that is left with nothing to put back is not pending any more."""
        gone, names = set(replicas), set(names)
        concerned: list[str] = []
        for key, pending in list(self.pending.items()):
            left: Moves = {}
            for replica, move in pending.limits.items():
                kept = {name: pair for name, pair in move.items() if replica not in gone or name not in names}
                if kept:
                    left[replica] = kept
            if left == pending.limits:
                continue
            concerned.append(key)
            if left:
                self.pending[key] = structs.replace(pending, limits=left)
            else:
                del self.pending[key]
        return concerned

    def tenant_changed(self, tenant: str) -> list[str]:
        """Somebody changes the tenant's limits again: the keys of those that are not pending any more."""
        concerned = [key for key, each in self.pending.items() if each.tenant == tenant]
        for key in concerned:
            del self.pending[key]
        return concerned

    async def put_back_limits(self, pending: PendingRevert) -> Moves:
        """Where they still are wanted as the change left them; from what to what, by replica. Refusal when a
        replica did not obey. One that has yet to load is told when it has."""
        back: dict[ReplicaHandle, dict[str, Any]] = {}
        moved: Moves = {}
        misfits: list[str] = []
        for replica, move in pending.limits.items():
            handle = self.handles.get(replica)
            if handle is None:
                continue  # it is gone
            wanted = handle.wanted_limits
            still = {name: pair for name, pair in move.items() if wanted.get(name) == pair[1]}
            if still:
                values = {name: before for name, (before, _) in still.items()}
                # Others may have changed meanwhile. One that loads must not be left wanting what it refuses.
                if (misfit := live_limits.misfits(handle, values)) is not None:
                    misfits.append(misfit)
                    continue
                back[handle] = values
                moved[replica] = {name: (after, before) for name, (before, after) in still.items()}
        await tell_all(back, thing="what it lives by")
        if misfits:
            raise refuse(
                409,
                "misfit",
                "What was before does not fit any more.",
                "; ".join([*misfits, *([f"moved back: {', '.join(moved)}"] if moved else [])]),
            )
        return moved

    async def put_back_tenant(self, pending: PendingRevert) -> bool:
        """False where they are not as the change left them any more."""
        if pending.tenant is None:
            return False
        before, after = pending.tenant_before, pending.tenant_after
        return await tenant_limits.restore(self.desk, self.handles, pending.tenant, before, after)
