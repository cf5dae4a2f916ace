"""Cancelling requests, one or a selection, as operations that succeed when the requests have ended."""

import asyncio
from collections.abc import Sequence

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.control.selection import SelectionError, parse_selection
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, misfit, refuse
from infer_engine.protocol import Cancel, CancelWhere, CommandResult, Effect, RequestRow

#: How long replicas may take to confirm that requests are gone.
CANCEL_TIMEOUT_S = 30.0
#: How many are named where a selection is shown.
MOST_NAMED = 100


class Cancels:
    def __init__(self, fleet: Fleet, operations: Operations) -> None:
        self._fleet = fleet
        self._operations = operations

    def one(self, row: RequestRow, command: Cancel) -> CommandResult:
        effect = _effect(row)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        operations, generation = self._operations, self._fleet.find(row.id)
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
            self._fleet.cancel(generation.id, actor=command.actor)
        return CommandResult(operation=operation, effect=effect)

    def where(self, command: CancelWhere) -> CommandResult:
        """Cancels what is selected now, if that is as many as the caller thinks. Refusal: 409 with both
        numbers when it is not."""
        try:
            selection = parse_selection(command.where)
        except SelectionError as error:
            raise misfit("where", f"{error}.") from error
        rows = [row for row in self._fleet.rows() if selection.selects(row)]
        effect = _effect_of_all(rows, command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        self._check_count(len(rows), command)
        found = [self._fleet.find(row.id) for row in rows]
        generations = [each for each in found if each is not None]
        params: dict[str, object] = {"where": command.where, "requests": [row.id for row in rows]}
        if not generations:
            operation = self._operations.record(
                "cancel", "0 requests", "nothing was selected", actor=command.actor, reason=command.reason
            )
            return CommandResult(operation=operation, effect=effect)
        self._operations.ensure_room()
        operation = self._operations.start(
            "cancel",
            f"{len(generations)} requests",
            lambda handle: _await_ends(handle, generations),
            actor=command.actor,
            reason=command.reason,
            params=params,
        )
        for generation in generations:
            self._fleet.cancel(generation.id, actor=command.actor)
        return CommandResult(operation=operation, effect=effect)

    def _check_count(self, found: int, command: CancelWhere) -> None:
        if command.expect is None:
            raise misfit("expect", f"say how many you expect; {found} are selected now.")
        if found != command.expect:
            raise refuse(
                409,
                "count_differs",
                "Another number of requests is selected than was expected.",
                f"{found} are selected now, {command.expect} were expected; none was cancelled.",
                numbers={"selected": float(found), "expected": float(command.expect)},
            )
        if found > command.max:
            raise refuse(
                409,
                "too_many_selected",
                "More requests are selected than may be cancelled at once.",
                f"{found} are selected, at most {command.max} are allowed; none was cancelled.",
                numbers={"selected": float(found), "allowed": float(command.max)},
            )


async def _await_end(handle: Handle, generation: Generation) -> None:
    """Until the request has ended; it may have finished by itself in the meantime."""
    deadline_s = asyncio.get_running_loop().time() + CANCEL_TIMEOUT_S
    await _ended(generation, deadline_s)
    how = (
        "cancelled"
        if generation.finish_reason == "cancelled"
        else f"it finished first ({generation.finish_reason})"
    )
    handle.update(message=f"{how} after {len(generation.emitted)} tokens")


async def _await_ends(handle: Handle, generations: Sequence[Generation]) -> None:
    deadline_s = asyncio.get_running_loop().time() + CANCEL_TIMEOUT_S
    for done, generation in enumerate(generations):
        handle.update(done=done, total=len(generations))
        await _ended(generation, deadline_s)
    cancelled = sum(generation.finish_reason == "cancelled" for generation in generations)
    others = len(generations) - cancelled
    finished = f", {others} finished first" if others else ""
    handle.update(done=len(generations), total=len(generations), message=f"{cancelled} cancelled{finished}")


async def _ended(generation: Generation, deadline_s: float) -> None:
    loop = asyncio.get_running_loop()
    while not generation.finished:
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            raise OperationFailed(f"the replica did not confirm in time that {generation.id} is gone")
        await generation.beyond(len(generation.emitted), left_s)


def _effect(row: RequestRow) -> Effect:
    if row.state == "finished":
        return Effect(summary=[f"{row.id} has finished already ({row.finish_reason}): nothing will change"])
    where = f" on {row.replica}" if row.replica else ""
    summary = [f"{row.id} ({row.state}{where}) ends; its client gets an error"]
    if row.state == "running":
        summary.append(f"{_blocks(row.kv_blocks)} free again by the next step")
    return Effect(
        summary=summary,
        numbers={
            "generated_tokens": float(row.generated_tokens),
            "max_tokens": None if row.max_tokens is None else float(row.max_tokens),
            "freed_blocks": float(row.kv_blocks),
        },
    )


def _effect_of_all(rows: Sequence[RequestRow], command: CancelWhere) -> Effect:
    blocks = sum(row.kv_blocks for row in rows)
    running = sum(row.state == "running" for row in rows)
    summary = [f"{len(rows)} requests end ({running} running); their clients get an error"]
    if blocks:
        summary.append(f"{_blocks(blocks)} free again by the next step")
    for row in rows[:MOST_NAMED]:
        where = f" on {row.replica}" if row.replica else ""
        summary.append(
            f"{row.id} ({row.state}{where}), {row.tier}, {row.generated_tokens:,} tokens, "
            f"{row.age_s:.0f} s old"
        )
    if len(rows) > MOST_NAMED:
        summary.append(f"and {len(rows) - MOST_NAMED} more")
    too_many = len(rows) > command.max
    return Effect(
        summary=summary,
        numbers={
            "requests": float(len(rows)),
            "running": float(running),
            "freed_blocks": float(blocks),
            "generated_tokens": float(sum(row.generated_tokens for row in rows)),
            "allowed": float(command.max),
        },
        warnings=[f"more than {command.max} are selected: refused unless max is raised"] if too_many else [],
    )


def _blocks(count: int) -> str:
    return "1 block is" if count == 1 else f"{count:,} blocks are"
