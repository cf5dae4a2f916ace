"""Moving the headroom marks, and moving them back after a while."""

from collections.abc import Callable

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.control.timed_change import start_revert
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import CommandResult, Kv, SetHeadroom

#: By replica: the limit before and after, in blocks.
Moves = dict[str, tuple[int, int]]


class Headroom:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._wall = wall

    async def set(self, command: SetHeadroom) -> CommandResult:
        """Move one mark of one replica or of all. Admission follows it from the next step; nobody is
        evicted."""
        effect = self._fleet.predict_headroom(command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        target = command.replica or "fleet"
        if command.revert_after_s is not None:
            self._operations.ensure_room()  # before the marks move: a refused command moves none
        # Before, too: a replica that answers late must not have its old mark put back after its new one.
        self._supersede_reverts(
            self._fleet.replica_ids() if command.replica is None else [command.replica], command
        )
        moves = await self._fleet.set_headroom(command)
        params: dict[str, object] = {
            "tier": command.tier,
            "limits": {each: list(move) for each, move in moves.items()},
        }
        message = _describe(moves, command)
        if command.revert_after_s is not None:
            params["revert_operation"] = self._start_revert(target, moves, command, command.revert_after_s)
            message += f"; back in {command.revert_after_s:g} s"
        operation = self._operations.record(
            "headroom", target, message, actor=command.actor, reason=command.reason, params=params
        )
        return CommandResult(operation=operation, effect=effect)

    def _supersede_reverts(self, replicas: list[str], command: SetHeadroom) -> None:
        """A mark that somebody moved again is not moved back under them; those of other replicas are."""
        for operation in self._operations.newest_first():
            if operation.kind != "headroom-revert" or operation.params.get("tier") != command.tier:
                continue
            before: list[str] = operation.params["replicas"]
            left = [replica for replica in before if replica not in replicas]
            if not left:
                self._operations.cancel(operation.id, "the mark was moved again")
            elif left != before:
                self._operations.change(operation.id, {"params": {**operation.params, "replicas": left}})

    def _start_revert(self, target: str, moves: Moves, command: SetHeadroom, after_s: float) -> str:
        async def revert(handle: Handle) -> str:
            left: list[str] = handle.operation.params["replicas"]
            reverted = await self._revert({replica: moves[replica] for replica in left}, command)
            return _describe(reverted, command) if reverted else "nothing to move back"

        return start_revert(
            self._operations,
            "headroom-revert",
            target,
            command,
            revert,
            after_s=after_s / self._fleet.pace,
            wall=self._wall,
            params={"tier": command.tier, "replicas": list(moves)},
        )

    async def _revert(self, moves: Moves, command: SetHeadroom) -> Moves:
        """Restore the old limits where the mark still is where the command put it."""
        reverted: Moves = {}
        for replica, (old, new) in moves.items():
            if replica not in self._fleet.replica_ids():
                continue
            kv = self._fleet.replica(replica).kv
            # One that is loading again shows no limit; it will be told the one that is wanted.
            if kv.total is None or _limit(kv, command) not in (new, None):
                continue
            back = SetHeadroom(replica=replica, blocks=kv.total - old, tier=command.tier)
            try:
                reverted |= await self._fleet.set_headroom(back)
            except Refusal as refusal:
                raise OperationFailed(f"{replica}: {refusal}") from refusal
        return reverted


def _limit(kv: Kv, command: SetHeadroom) -> int | None:
    return kv.admit_limit if command.tier == "interactive" else kv.batch_limit


def _describe(moves: Moves, command: SetHeadroom) -> str:
    mark = "admit limit" if command.tier == "interactive" else "batch limit"
    return ", ".join(
        f"{replica} {mark} {old} → {new} blocks" if old != new else f"{replica} {mark} stays at {new} blocks"
        for replica, (old, new) in moves.items()
    )
