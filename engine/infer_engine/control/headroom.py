"""Moving the headroom marks, and moving them back after a while."""

from collections.abc import Callable

from infer_engine.control.operations import Operations
from infer_engine.control.timed_change import HEADROOM, TimedChanges, moves_text, with_revert
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.headroom import mark_name
from infer_engine.fleet.live_limits import Moves
from infer_engine.fleet.spec_file import PendingRevert
from infer_engine.protocol import CommandResult, SetHeadroom


class Headroom:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._timed = TimedChanges(fleet, operations, wall)

    async def set(self, command: SetHeadroom) -> CommandResult:
        """Move one mark of one replica or of all. Admission follows it from the next step; nobody is
        evicted."""
        effect = with_revert(self._fleet.limits.predict_headroom(command), command.revert_after_s)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        target, name = command.replica or "fleet", mark_name(command.tier)
        if command.revert_after_s is not None:
            self._operations.ensure_room()  # before the marks move: a refused command moves none
        # Before, too: a replica that answers late must not have its old mark put back after its new one.
        replicas = self._fleet.replica_ids() if command.replica is None else [command.replica]
        self._timed.limits_change(replicas, [name], "the mark was moved again")
        with self._timed.announced(self._revert(target, command)) as key:
            moved = await self._fleet.limits.set_headroom(command)
        moves: Moves = {each: {name: move} for each, move in moved.items()}
        params: dict[str, object] = {
            "tier": command.tier,
            "limits": {each: list(move) for each, move in moved.items()},
        }
        message = moves_text(moves)
        message += self._timed.told(key, command.revert_after_s, params, moves)
        operation = self._operations.record(
            "headroom", target, message, actor=command.actor, reason=command.reason, params=params
        )
        return CommandResult(operation=operation, effect=effect)

    def _revert(self, target: str, command: SetHeadroom) -> PendingRevert | None:
        if command.revert_after_s is None:
            return None
        return PendingRevert(
            kind=HEADROOM,
            target=target,
            due_at=self._timed.due_at(command.revert_after_s),
            actor=command.actor,
            reason=command.reason,
            limits=self._fleet.reverts.of_headroom(command),
        )
