"""A change that goes back by itself after a while, unless somebody changed the same thing again."""

import asyncio
from collections.abc import Awaitable, Callable

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import ChangeLimits, ChangeTenant

#: Puts back what was before where it still is as the command left it; says what it did.
Revert = Callable[[], Awaitable[str]]


def start_revert(
    operations: Operations,
    kind: str,
    target: str,
    command: ChangeLimits | ChangeTenant,
    after_s: float,
    revert: Revert,
    wall: Callable[[], float],
) -> str:
    """The id of the operation that will revert. The caller asked for room before its change took effect."""

    async def work(handle: Handle) -> None:
        await asyncio.sleep(after_s)
        try:
            handle.update(message=await revert())
        except Refusal as refusal:
            raise OperationFailed(str(refusal)) from refusal

    return operations.start(
        kind,
        target,
        work,
        actor=command.actor,
        reason=command.reason,
        deadline_at=wall() + after_s,
        refusable=False,
    ).id


def supersede(operations: Operations, kind: str, target: str) -> None:
    """Who changes a thing again does not want it moved back under them."""
    while (pending := operations.running(kind, target)) is not None:
        operations.cancel(pending.id, "it was changed again")
