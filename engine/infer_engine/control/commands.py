"""The control API's commands. Each answers with the predicted effect, and with an operation unless it is a
dry run."""

import asyncio
import time

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from infer_engine.control.context import Context
from infer_engine.control.decode import C, check_tenant, decode
from infer_engine.control.drains import Drains
from infer_engine.control.guard import read_body
from infer_engine.control.headroom import Headroom
from infer_engine.control.limits import LimitChanges
from infer_engine.control.operations import Handle, OperationFailed
from infer_engine.control.principal import attributed
from infer_engine.control.problems import json_response
from infer_engine.control.reads import unknown_replica, unknown_request
from infer_engine.fleet.generation import Generation
from infer_engine.protocol import (
    Cancel,
    ChangeLimits,
    ChangeTenant,
    CommandResult,
    Drain,
    Effect,
    Inject,
    RequestRow,
    SetHeadroom,
    StopInjection,
    Undrain,
)

#: How long a replica may take to confirm that a request is gone.
CANCEL_TIMEOUT_S = 30.0


class Commands:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._drains = Drains(context.fleet, context.operations, time.time)
        self._headroom = Headroom(context.fleet, context.operations, time.time)
        self._limits = LimitChanges(context.fleet, context.operations, time.time)

    async def drain(self, request: Request) -> Response:
        replica = self._replica(request)
        command = await _command(Drain, request)
        return json_response(self._drains.drain(replica, command))

    async def undrain(self, request: Request) -> Response:
        replica = self._replica(request)
        command = await _command(Undrain, request)
        return json_response(self._drains.undrain(replica, command))

    async def headroom(self, request: Request) -> Response:
        command = await _command(SetHeadroom, request)
        if command.replica is not None and command.replica not in self._context.fleet.replica_ids():
            raise unknown_replica()
        return json_response(await self._headroom.set(command))

    async def limits(self, request: Request) -> Response:
        command = await _command(ChangeLimits, request)
        return json_response(await self._limits.change_limits(command))

    async def tenant(self, request: Request) -> Response:
        tenant: str = request.path_params["name"]
        check_tenant(tenant)
        command = await _command(ChangeTenant, request)
        return json_response(await self._limits.change_tenant(tenant, command))

    async def cancel(self, request: Request) -> Response:
        command = await _command(Cancel, request)
        fleet = self._context.fleet
        row, generation = fleet.row(request.path_params["id"]), fleet.find(request.path_params["id"])
        if row is None:
            raise unknown_request()
        effect = _cancel_effect(row)
        if command.dry_run:
            return json_response(CommandResult(operation=None, effect=effect))
        operations = self._context.operations
        if generation is None or generation.finished:
            operation = operations.record(
                "cancel",
                row.id,
                f"already finished ({row.finish_reason})",
                actor=command.actor,
                reason=command.reason,
            )
        elif (under_way := operations.running("cancel", row.id)) is not None:
            operation = under_way
        else:
            # At most one per live request, so this needs no other bound.
            operation = operations.start(
                "cancel",
                generation.id,
                lambda handle: _await_end(handle, generation),
                actor=command.actor,
                reason=command.reason,
                refusable=False,
            )
            fleet.cancel(generation.id, actor=command.actor)
        return json_response(CommandResult(operation=operation, effect=effect))

    async def inject(self, request: Request) -> Response:
        command = await _command(Inject, request)
        injector = self._context.injector
        effect = injector.predict(command)
        if command.dry_run:
            return json_response(CommandResult(operation=None, effect=effect))
        return json_response(CommandResult(operation=injector.start(command), effect=effect))

    async def stop_injection(self, request: Request) -> Response:
        command = await _command(StopInjection, request)
        injector = self._context.injector
        effect = injector.predict_stop()
        if command.dry_run:
            return json_response(CommandResult(operation=None, effect=effect))
        operation = injector.stop(command)
        return json_response(CommandResult(operation=operation, effect=effect))

    def _replica(self, request: Request) -> str:
        replica: str = request.path_params["id"]
        if replica not in self._context.fleet.replica_ids():
            raise unknown_replica()
        return replica


async def _command(kind: type[C], request: Request) -> C:
    """The command in the body; its actor is whom the server knows, with what the caller claims beside it."""
    command = decode(kind, await read_body(request))
    return structs.replace(command, actor=attributed(request.scope, command.actor))


async def _await_end(handle: Handle, generation: Generation) -> None:
    """Until the request has ended; it may have finished by itself in the meantime."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + CANCEL_TIMEOUT_S
    while not generation.finished:
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            raise OperationFailed("the replica did not confirm in time")
        await generation.beyond(len(generation.emitted), left_s)
    how = (
        "cancelled"
        if generation.finish_reason == "cancelled"
        else f"it finished first ({generation.finish_reason})"
    )
    handle.update(message=f"{how} after {len(generation.emitted)} tokens")


def _cancel_effect(row: RequestRow) -> Effect:
    if row.state == "finished":
        return Effect(summary=[f"{row.id} has finished already ({row.finish_reason}): nothing will change"])
    where = f" on {row.replica}" if row.replica else ""
    summary = [f"{row.id} ({row.state}{where}) ends; its client gets an error"]
    if row.state == "running":
        blocks = "1 block is" if row.kv_blocks == 1 else f"{row.kv_blocks} blocks are"
        summary.append(f"{blocks} free again by the next step")
    return Effect(
        summary=summary,
        numbers={
            "generated_tokens": float(row.generated_tokens),
            "max_tokens": None if row.max_tokens is None else float(row.max_tokens),
            "freed_blocks": float(row.kv_blocks),
        },
    )
