"""Changing live limits of replicas and of tenants, and putting them back after a while."""

import asyncio
from collections.abc import Callable

from infer_engine.control.operations import Operations
from infer_engine.control.timed_change import start_revert, supersede
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.live_limits import Moves
from infer_engine.protocol import ChangeLimits, ChangeTenant, CommandResult, Effect, TenantLimits


class LimitChanges:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._wall = wall
        #: One change after another, each with its revert: of two under way at once, the later must find the
        #: revert of the earlier, to cancel it.
        self._turn = asyncio.Lock()

    async def change_limits(self, command: ChangeLimits) -> CommandResult:
        """All that are given, or none, between two steps of each replica; nobody is evicted."""
        effect = self._fleet.predict_limits(command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        if command.revert_after_s is not None:
            self._operations.ensure_room()  # before anything moves: a refused command moves nothing
        async with self._turn:
            return await self._change_limits(command, effect)

    async def _change_limits(self, command: ChangeLimits, effect: Effect) -> CommandResult:
        target = command.replica or "fleet"
        supersede(self._operations, "limits-revert", target)
        moves = await self._fleet.change_limits(command)
        message = _describe(moves)
        params: dict[str, object] = {
            "limits": {
                each: {name: list(pair) for name, pair in move.items()} for each, move in moves.items()
            }
        }
        if command.revert_after_s is not None:
            params["revert_operation"] = start_revert(
                self._operations,
                "limits-revert",
                target,
                command,
                lambda _: self._restore(moves),
                after_s=command.revert_after_s / self._fleet.pace,
                wall=self._wall,
            )
            message += f"; back in {command.revert_after_s:g} s"
        operation = self._operations.record(
            "limits", target, message, actor=command.actor, reason=command.reason, params=params
        )
        return CommandResult(operation=operation, effect=effect)

    async def _restore(self, moves: Moves) -> str:
        now = self._fleet.limits().replicas
        restored: Moves = {}
        for replica, move in moves.items():
            if replica not in now:
                continue  # it is gone
            # One that is loading again tells none; it will be told those that are wanted.
            back = {
                name: old for name, (old, new) in move.items() if now.get(replica, {}).get(name, new) == new
            }
            if back:
                restored |= await self._fleet.change_limits(ChangeLimits(replica=replica, limits=back))
        return _describe(restored) if restored else "nothing to put back"

    async def change_tenant(self, tenant: str, command: ChangeTenant) -> CommandResult:
        """What a tenant may use from now on; who runs goes on."""
        effect = self._fleet.predict_tenant(tenant, command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        if command.revert_after_s is not None:
            self._operations.ensure_room()
        async with self._turn:
            return await self._change_tenant(tenant, command, effect)

    async def _change_tenant(self, tenant: str, command: ChangeTenant, effect: Effect) -> CommandResult:
        supersede(self._operations, "tenant-revert", tenant)
        before, after = await self._fleet.change_tenant(tenant, command)
        message = f"{_limits(before)} → {_limits(after)}"
        params: dict[str, object] = {"before": before, "after": after}
        if command.revert_after_s is not None:
            params["revert_operation"] = start_revert(
                self._operations,
                "tenant-revert",
                tenant,
                command,
                lambda _: self._restore_tenant(tenant, before, after),
                after_s=command.revert_after_s / self._fleet.pace,
                wall=self._wall,
            )
            message += f"; back in {command.revert_after_s:g} s"
        operation = self._operations.record(
            "tenant", tenant, message, actor=command.actor, reason=command.reason, params=params
        )
        return CommandResult(operation=operation, effect=effect)

    async def _restore_tenant(
        self, tenant: str, before: TenantLimits | None, after: TenantLimits | None
    ) -> str:
        if not await self._fleet.restore_tenant(tenant, before, expected=after):
            return "nothing to put back"
        return f"{_limits(after)} → {_limits(before)}"


def _describe(moves: Moves) -> str:
    return ", ".join(
        f"{replica} {name} {old} → {new}" if old != new else f"{replica} {name} stays {new}"
        for replica, move in moves.items()
        for name, (old, new) in move.items()
    )


def _limits(limits: TenantLimits | None) -> str:
    if limits is None:
        return "the default"
    given = {
        name: value for name in TenantLimits.__struct_fields__ if (value := getattr(limits, name)) is not None
    }
    return " ".join(f"{name}={value}" for name, value in given.items()) or "no limits"
