"""The control API's commands: what each does once the pipeline lets it. Each answers with the predicted
effect, and with an operation unless it is a dry run."""

from starlette.requests import Request

from infer_engine.control.cancels import Cancels
from infer_engine.control.context import Context
from infer_engine.control.decode import check_tenant
from infer_engine.control.drains import Drains
from infer_engine.control.headroom import Headroom
from infer_engine.control.limits import LimitChanges
from infer_engine.control.preempts import Preempts
from infer_engine.control.principal import principal_of
from infer_engine.control.reads import replica_of
from infer_engine.fleet.unknown import unknown_replica, unknown_request
from infer_engine.protocol import (
    AcquireLease,
    Cancel,
    CancelWhere,
    ChangeLimits,
    ChangeTenant,
    CommandResult,
    Drain,
    Inject,
    Lease,
    Preempt,
    ReleaseLease,
    RenewLease,
    SetHeadroom,
    StopInjection,
    Undrain,
)


class Commands:
    def __init__(self, context: Context) -> None:
        self._context = context
        wall = context.fleet.feed.wall
        self._cancels = Cancels(context.fleet, context.operations)
        self._drains = Drains(context.fleet, context.operations, wall)
        self._preempts = Preempts(context.fleet, context.operations)
        self._headroom = Headroom(context.fleet, context.operations, wall)
        self._limits = LimitChanges(context.fleet, context.operations, wall)

    async def drain(self, request: Request, command: Drain) -> CommandResult:
        return self._drains.drain(replica_of(request, self._context.fleet), command)

    async def undrain(self, request: Request, command: Undrain) -> CommandResult:
        return self._drains.undrain(replica_of(request, self._context.fleet), command)

    async def headroom(self, _request: Request, command: SetHeadroom) -> CommandResult:
        if command.replica is not None and command.replica not in self._context.fleet.replica_ids():
            raise unknown_replica(command.replica)
        return await self._headroom.set(command)

    async def limits(self, _request: Request, command: ChangeLimits) -> CommandResult:
        return await self._limits.change_limits(command)

    async def tenant(self, request: Request, command: ChangeTenant) -> CommandResult:
        tenant: str = request.path_params["name"]
        check_tenant(tenant)
        return await self._limits.change_tenant(tenant, command)

    async def cancel(self, request: Request, command: Cancel) -> CommandResult:
        request_id: str = request.path_params["id"]
        row = self._context.fleet.row(request_id)
        if row is None:
            raise unknown_request(request_id)
        return self._cancels.one(row, command)

    async def cancel_where(self, _request: Request, command: CancelWhere) -> CommandResult:
        return self._cancels.where(command)

    async def preempt(self, request: Request, command: Preempt) -> CommandResult:
        return self._preempts.preempt(request.path_params["id"], command)

    async def inject(self, _request: Request, command: Inject) -> CommandResult:
        injector = self._context.injector
        effect = injector.predict(command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        return CommandResult(operation=injector.start(command), effect=effect)

    async def stop_injection(self, _request: Request, command: StopInjection) -> CommandResult:
        injector = self._context.injector
        effect = injector.predict_stop()
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        return CommandResult(operation=injector.stop(command), effect=effect)

    # --- leases: a dry run says what is, and takes nothing

    async def acquire_lease(self, request: Request, command: AcquireLease) -> Lease:
        leases = self._context.leases
        if command.dry_run:
            leases.check(None, fleet_wide=True)
            return Lease(id="", token=0, holder=_holder(request), purpose=command.purpose, expires_at=0.0)
        return leases.acquire(_holder(request), command.purpose)

    async def renew_lease(self, request: Request, command: RenewLease) -> Lease:
        lease, holder = request.path_params["id"], _holder(request)
        leases = self._context.leases
        return leases.own(lease, holder) if command.dry_run else leases.renew(lease, holder)

    async def release_lease(self, request: Request, command: ReleaseLease) -> Lease:
        lease, holder = request.path_params["id"], _holder(request)
        leases = self._context.leases
        return leases.own(lease, holder) if command.dry_run else leases.release(lease, holder)


def _holder(request: Request) -> str:
    principal = principal_of(request.scope)
    return principal.subject if principal is not None else "-"
