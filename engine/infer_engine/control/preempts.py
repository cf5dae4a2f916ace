"""Preempting as an operation: it succeeds when the replica says that it was done."""

import asyncio

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation
from infer_engine.protocol import CommandResult, Preempt

#: How long replicas may take to do it: one between two of its steps, and another to be sent the request.
PREEMPT_TIMEOUT_S = 30.0
POLL_S = 0.05


class Preempts:
    def __init__(self, fleet: Fleet, operations: Operations) -> None:
        self._fleet = fleet
        self._operations = operations

    def preempt(self, request_id: str, command: Preempt) -> CommandResult:
        """Refusal when the request does not run, or where it is to go takes none."""
        effect = self._fleet.preempting.predict(request_id, command)
        generation = self._fleet.find(request_id)
        if command.dry_run or generation is None:
            return CommandResult(operation=None, effect=effect)
        before = (generation.preemptions, generation.moves)
        operation = self._operations.start(
            "preempt",
            request_id,
            lambda handle: _await_done(handle, generation, before, command.to),
            actor=command.actor,
            reason=command.reason,
            params={} if command.to is None else {"to": command.to},
        )
        self._fleet.preempting.preempt(request_id, command)
        return CommandResult(operation=operation, effect=effect)


async def _await_done(
    handle: Handle, generation: Generation, before: tuple[int, int], to: str | None
) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + PREEMPT_TIMEOUT_S
    while True:
        if to is not None and generation.moves > before[1]:
            if generation.replica != to:
                raise OperationFailed(
                    f"{to} did not take it: it goes on at {generation.replica or 'none yet'}"
                )
            handle.update(message=f"it goes on at {to} after {len(generation.emitted)} tokens")
            return
        if to is None and generation.preemptions > before[0]:
            handle.update(message=f"preempted after {len(generation.emitted)} tokens")
            return
        if generation.finished:
            raise OperationFailed(f"it finished first ({generation.finish_reason})")
        if loop.time() >= deadline_s:
            raise OperationFailed("its replica did not confirm in time")
        await asyncio.sleep(POLL_S)
