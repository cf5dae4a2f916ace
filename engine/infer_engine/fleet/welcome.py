"""What a replica gets that has loaded, or that comes later than the others: what is wanted of it, and then
requests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infer_engine.fleet.beginning import Wanted, common_limits, prime_tenants
from infer_engine.fleet.observers import Observers
from infer_engine.fleet.placement import Placement
from infer_engine.fleet.state_change import set_state
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import SetLimits, SetShed

#: Limits that are of the tenants.
TENANT_LIMITS = frozenset({"tenant_default", "tenants"})


@dataclass(frozen=True, slots=True)
class Welcome:
    handles: Mapping[str, ReplicaHandle]
    placement: Placement
    observers: Observers
    tenants: TenantDesk
    wanted: Wanted
    stopping: Callable[[], bool]

    def loaded(self, handle: ReplicaHandle) -> None:
        """It gets what operators asked of its former lives, then requests."""
        handle.error = handle.unready_since_s = None
        handle.was_ready = True
        self.placement.routing.forget(handle.id)
        handle.tell(handle.wanted_view)
        # Apart, so that marks which do not fit its pool any more do not keep the rest from it.
        tenants = {name: handle.wanted_limits[name] for name in TENANT_LIMITS & handle.wanted_limits.keys()}
        limits = {name: handle.wanted_limits[name] for name in handle.wanted_limits.keys() - TENANT_LIMITS}
        for wanted in filter(None, (limits, tenants)):
            handle.tell(SetLimits(call=0, **wanted))
        if handle.shed:
            handle.tell(SetShed(on=True))
        if self.stopping():
            return
        feed = self.placement.ledger.feed
        if handle.cordoned:
            handle.set_admission(admit=False)
            set_state(handle, feed, "draining", message="admission stays closed over the restart")
        else:
            set_state(handle, feed, "ready")
            self.placement.placer.flush_held()

    def joined(self, handle: ReplicaHandle) -> None:
        """One more than at the start is wanted as the others are."""
        prime_tenants(handle, self.tenants)
        others = [each for each in self.handles.values() if each is not handle and not each.fenced]
        handle.wanted_limits.update(common_limits(others))
        handle.shed = self.wanted.shed
        self.observers.joined()
