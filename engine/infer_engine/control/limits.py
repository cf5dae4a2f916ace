"""Changing live limits of replicas and of tenants, and putting them back after a while."""

import asyncio
from collections.abc import Callable

from infer_engine.control.operations import Operations
from infer_engine.control.timed_change import TimedChanges, moves_text, tenant_text, with_revert
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.spec_file import PendingRevert
from infer_engine.protocol import ChangeLimits, ChangeTenant, CommandResult, Effect


class LimitChanges:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._timed = TimedChanges(fleet, operations, wall)
        #: One change after another, each with its revert: of two under way at once, the later must find the
        #: revert of the earlier, to cancel it.
        self._turn = asyncio.Lock()

    async def change_limits(self, command: ChangeLimits) -> CommandResult:
        """All that are given, or none, between two steps of each replica; nobody is evicted."""
        effect = with_revert(self._fleet.limits.predict(command), command.revert_after_s)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        if command.revert_after_s is not None:
            self._operations.ensure_room()  # before anything moves: a refused command moves nothing
        async with self._turn:
            return await self._change_limits(command, effect)

    async def _change_limits(self, command: ChangeLimits, effect: Effect) -> CommandResult:
        target = command.replica or "fleet"
        replicas = self._fleet.replica_ids() if command.replica is None else [command.replica]
        self._timed.limits_change(replicas, command.limits, "it was changed again")
        with self._timed.announced(self._limits_revert(target, command)) as key:
            moves = await self._fleet.limits.change(command)
        message = moves_text(moves)
        params: dict[str, object] = {
            "limits": {
                each: {name: list(pair) for name, pair in move.items()} for each, move in moves.items()
            }
        }
        message += self._timed.told(key, command.revert_after_s, params, moves)
        operation = self._operations.record(
            "limits", target, message, actor=command.actor, reason=command.reason, params=params
        )
        return CommandResult(operation=operation, effect=effect)

    async def change_tenant(self, tenant: str, command: ChangeTenant) -> CommandResult:
        """What a tenant may use from now on; who runs goes on."""
        effect = with_revert(self._fleet.tenants.predict(tenant, command), command.revert_after_s)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        if command.revert_after_s is not None:
            self._operations.ensure_room()
        async with self._turn:
            return await self._change_tenant(tenant, command, effect)

    async def _change_tenant(self, tenant: str, command: ChangeTenant, effect: Effect) -> CommandResult:
        self._timed.tenant_changes(tenant)
        with self._timed.announced(self._tenant_revert(tenant, command)) as key:
            before, after = await self._fleet.tenants.change(tenant, command)
        message = f"{tenant_text(before)} → {tenant_text(after)}"
        params: dict[str, object] = {"before": before, "after": after}
        message += self._timed.told(key, command.revert_after_s, params)
        operation = self._operations.record(
            "tenant", tenant, message, actor=command.actor, reason=command.reason, params=params
        )
        return CommandResult(operation=operation, effect=effect)

    def _limits_revert(self, target: str, command: ChangeLimits) -> PendingRevert | None:
        if command.revert_after_s is None:
            return None
        return PendingRevert(
            kind="limits-revert",
            target=target,
            due_at=self._timed.due_at(command.revert_after_s),
            actor=command.actor,
            reason=command.reason,
            limits=self._fleet.reverts.of_limits(command),
        )

    def _tenant_revert(self, tenant: str, command: ChangeTenant) -> PendingRevert | None:
        if command.revert_after_s is None:
            return None
        before, after = self._fleet.reverts.of_tenant(tenant, command)
        return PendingRevert(
            kind="tenant-revert",
            target=tenant,
            due_at=self._timed.due_at(command.revert_after_s),
            actor=command.actor,
            reason=command.reason,
            tenant=tenant,
            tenant_before=before,
            tenant_after=after,
        )
