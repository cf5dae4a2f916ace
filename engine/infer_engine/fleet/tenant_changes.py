"""The tenants as an operator sees and changes them; what they may do is decided at the tenants' desk."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet import tenant_limits
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.outlook_desk import OutlookDesk
from infer_engine.fleet.specs import Specs
from infer_engine.fleet.tenant_use import own_parts
from infer_engine.fleet.tenants import TenantDesk
from infer_engine.protocol import ChangeTenant, Effect, TenantLimits, Tenants
from infer_engine.replica.handle import ReplicaHandle


@dataclass(frozen=True, slots=True)
class TenantChanges:
    """Refusal for limits that do not fit, or when a replica did not obey."""

    desk: TenantDesk
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    specs: Specs
    outlook: OutlookDesk

    def now(self) -> Tenants:
        """What they hold is reckoned as for the fleet's picture, so that both say the same."""
        requests = self.ledger.live.values()
        parts = own_parts(requests, {handle.id: handle.kv_used for handle in self.handles.values()})
        return self.specs.of_tenants(self.desk.status(requests, parts, self.ledger.clock()))

    def predict(self, tenant: str, command: ChangeTenant) -> Effect:
        """What it does to those who are here, and what the next minute brings if the last one comes again."""
        effect = tenant_limits.predict(self.desk, self.now(), self.handles, tenant, command)
        return tenant_limits.with_outlook(effect, self.outlook, self.desk, tenant, command, self.specs.wanted)

    async def change(
        self, tenant: str, command: ChangeTenant
    ) -> tuple[TenantLimits | None, TenantLimits | None]:
        """What the tenant's own limits were and are; None where it goes by the default."""
        return await tenant_limits.apply(self.desk, self.handles, tenant, command)
