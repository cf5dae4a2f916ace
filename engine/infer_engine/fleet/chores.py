"""What has to be looked at again and again, whatever happens: overdue requests, replicas that do not read,
specs that are not written yet."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from infer_engine.fleet.health import has_work
from infer_engine.fleet.joining import Joining
from infer_engine.fleet.members import Members
from infer_engine.fleet.moments import Moments
from infer_engine.fleet.placement import Placement
from infer_engine.fleet.scaling_desk import ScalingDesk
from infer_engine.fleet.specs import Specs
from infer_engine.fleet.stalls import Stalls
from infer_engine.fleet.tenant_use import TenantUses
from infer_engine.fleet.tenants import TenantDesk

#: How often replicas that did not read are tried again, and held requests looked at.
TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Chores:
    placement: Placement
    moments: Moments
    tenants: TenantDesk
    uses: TenantUses
    scaling: ScalingDesk
    members: Members
    specs: Specs
    stopping: Callable[[], bool]
    rebalance: bool
    joining: Joining | None
    #: None where a stalled replica is left to the operator.
    stalls: Stalls | None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self._requests()
            self._replicas()
            await self._save_specs()

    def _requests(self) -> None:
        ledger = self.placement.ledger
        now_s = ledger.clock()
        self.moments.note(now_s, ledger.feed.wall())
        self.tenants.rate.forget_idle(now_s)
        self.uses.forget_idle(now_s)
        self.placement.placer.end_overdue()
        self.placement.placer.flush_held()
        self.scaling.tick()
        self.placement.moving.advance()
        if self.rebalance:
            self.placement.rebalancing.tick()

    def _replicas(self) -> None:
        for handle in self.members.handles.values():
            if not handle.flush():
                handle.error = "it has not read its messages for too long"
                self.members.lifecycles[handle.id].kill()
            if not has_work(handle, self.placement.ledger.on(handle.id)):
                handle.work_since_s = None
        if self.stopping():
            return
        if self.joining is not None:
            self.joining.tick()
        if self.stalls is not None:
            self.stalls.look()

    async def _save_specs(self) -> None:
        """What nobody waits to be told of: changes that the server itself made, or that could not be written
        before."""
        try:
            await self.specs.save()
        except OSError as error:
            self.specs.unwritten(error)
