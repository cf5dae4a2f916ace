"""Draining as an operation: it reports what it waits for, keeps its deadline, and succeeds only when nothing
is left."""

import asyncio
from collections.abc import Callable

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import CommandResult, Drain, DrainMode, Operation, Replica, ReplicaState, Undrain

#: How often a drain looks at its replica.
POLL_S = 0.1
#: Requests named one by one in ``blocked_by``.
MOST_NAMED = 8
#: Of two drains of a replica the stricter holds.
_STRICTNESS: dict[DrainMode, int] = {"wait": 0, "migrate": 1, "cancel": 2}
#: A drain that sees its replica in one of these will not succeed any more.
ENDS: frozenset[ReplicaState] = frozenset({"ready", "failed", "stopping", "fenced"})


class Drains:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._wall = wall

    def drain(self, replica: str, command: Drain) -> CommandResult:
        """Begin, or join the drain that is under way: its deadline can be shortened, and its mode made
        stricter. Refusal when the fleet would not survive it."""
        effect = self._fleet.draining.predict(replica, command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        under_way = self._operations.running("drain", replica)
        if under_way is not None:
            return CommandResult(operation=self._join(under_way, command), effect=effect)
        was = self._fleet.replica(replica)
        deadline_at = self._deadline_at(command)
        operation = self._operations.start(
            "drain",
            replica,
            lambda handle: self._work(handle, replica, _left(was)),
            actor=command.actor,
            reason=command.reason,
            deadline_at=deadline_at,
            params={
                "mode": self._fleet.draining.mode(replica, command),
                "on_deadline": command.on_deadline,
                "force": command.force,
            },
            refusable=False,  # at most one per replica
        )
        self._fleet.draining.drain(replica, command)
        return CommandResult(operation=operation, effect=effect)

    def undrain(self, replica: str, command: Undrain) -> CommandResult:
        """Take the replica back; a drain under way ends as cancelled. What it cancelled stays cancelled."""
        effect = self._fleet.draining.predict_undrain(replica)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        was = self._fleet.replica(replica).state
        self._fleet.draining.undrain(replica, actor=command.actor)
        under_way = self._operations.running("drain", replica)
        if under_way is not None:
            self._operations.cancel(under_way.id, "undrained")
        operation = self._operations.record(
            "undrain",
            replica,
            "it was ready already" if was == "ready" else f"was {was}, takes requests again",
            actor=command.actor,
            reason=command.reason,
        )
        return CommandResult(operation=operation, effect=effect)

    def _join(self, under_way: Operation, command: Drain) -> Operation:
        """What is under way becomes stricter, never laxer: undrain and drain again for that."""
        deadline_at = self._deadline_at(command)
        params = dict(under_way.params)
        changes: dict[str, object] = {"params": params}
        if deadline_at is not None and (under_way.deadline_at is None or deadline_at < under_way.deadline_at):
            changes["deadline_at"] = deadline_at
        if command.on_deadline == "cancel":
            params["on_deadline"] = "cancel"
        if command.mode is not None and _STRICTNESS[command.mode] > _STRICTNESS[params.get("mode", "wait")]:
            self._fleet.draining.drain(under_way.target, command)
            params["mode"] = command.mode
        self._operations.change(under_way.id, changes)
        return self._operations.get(under_way.id)

    def _deadline_at(self, command: Drain) -> float | None:
        """Durations are of the fleet's clock, moments are real."""
        if command.deadline_s is None:
            return None
        return self._wall() + command.deadline_s / self._fleet.pace

    async def _work(self, handle: Handle, replica: str, total: int) -> None:
        deadline_passed = False
        while True:
            if replica not in self._fleet.replica_ids():
                raise OperationFailed(f"{replica} is gone")
            status = self._fleet.replica(replica)
            if status.state in ENDS:
                raise OperationFailed(f"{replica} is {status.state}: {status.error or 'no reason known'}")
            if status.state == "drained":
                handle.update(done=total, total=total, blocked_by=[], message="0 running, 0 blocks held")
                return
            left = _left(status)
            total = max(total, left)
            handle.update(done=total - left, total=total, blocked_by=self._blocked_by(status))
            deadline_at = handle.operation.deadline_at
            if not deadline_passed and deadline_at is not None and self._wall() >= deadline_at:
                deadline_passed = True
                self._at_deadline(handle, replica)
            await asyncio.sleep(POLL_S)

    def _at_deadline(self, handle: Handle, replica: str) -> None:
        if handle.operation.params.get("on_deadline") == "cancel":
            self._fleet.draining.cancel_running(replica, actor=handle.operation.actor)
            handle.update(message="the deadline passed: running requests were cancelled")
        else:
            handle.update(message="the deadline passed: still waiting for running requests")

    def _blocked_by(self, status: Replica) -> list[str]:
        if status.state != "draining":  # it died; its requests went elsewhere, and it comes back drained
            return [f"{status.id} is {status.state}"]
        rows = self._fleet.rows(status.id, "running")
        named = [
            f"{row.id}: {row.generated_tokens} of at most {row.max_tokens} tokens, {row.kv_blocks:,} blocks"
            for row in rows[:MOST_NAMED]
        ]
        if len(rows) > MOST_NAMED:
            named.append(f"and {len(rows) - MOST_NAMED} more running")
        if status.health == "stalled":
            named.insert(0, f"{status.id} is stalled: it does not answer")
        if not rows and status.kv.used:
            named.append(f"{status.kv.used:,} blocks held")
        return named


def _left(status: Replica) -> int:
    """Requests that the replica still has."""
    return (status.running or 0) + (status.waiting or 0)
