"""A change that goes back by itself after a while, unless somebody changed the same thing again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import ChangeLimits, ChangeTenant, SetHeadroom

#: Puts back what was before where it still is as the command left it; says what it did.
Revert = Callable[[Handle], Awaitable[str]]


def start_revert(
    operations: Operations,
    kind: str,
    target: str,
    command: ChangeLimits | ChangeTenant | SetHeadroom,
    revert: Revert,
    *,
    after_s: float,
    wall: Callable[[], float],
    params: dict[str, Any] | None = None,
) -> str:
    """The id of the operation that will revert, in ``after_s`` real seconds; ``params`` are the operation's.
    The caller asked for room before its change took effect."""

    async def work(handle: Handle) -> None:
        await asyncio.sleep(after_s)
        try:
            handle.update(message=await revert(handle))
        except Refusal as refusal:
            raise OperationFailed(str(refusal)) from refusal

    return operations.start(
        kind,
        target,
        work,
        actor=command.actor,
        reason=command.reason,
        deadline_at=wall() + after_s,
        params=params,
        refusable=False,
    ).id


def supersede(operations: Operations, kind: str, target: str) -> None:
    """Who changes a thing again does not want it moved back under them."""
    while (pending := operations.running(kind, target)) is not None:
        operations.cancel(pending.id, "it was changed again")
