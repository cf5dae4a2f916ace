"""Fence, release, restart and shed as operations: each says how far it is and what it waits for."""

import asyncio
from collections.abc import Callable

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import refuse
from infer_engine.fleet.not_ours import not_ours
from infer_engine.protocol import (
    CommandResult,
    Drain,
    Effect,
    Fence,
    Operation,
    Release,
    Replica,
    ReplicaState,
    Restart,
    Shed,
)

#: How often an operation looks at its replica.
POLL_S = 0.1
#: How long a replica may take to end, or to load, before the operation gives up waiting for it.
END_S = 30.0
LOAD_S = 600.0
#: Requests named one by one in ``blocked_by``.
MOST_NAMED = 8
#: What a replica that has loaded is in.
LOADED: frozenset[ReplicaState] = frozenset({"ready", "draining", "drained"})
DRAINABLE: frozenset[ReplicaState] = frozenset({"ready", "draining", "drained"})
RESTARTABLE = DRAINABLE | {"failed", "restarting"}


class Lifecycles:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._wall = wall

    # --- fence and release ---------------------------------------------------------------------------------

    def fence(self, replica: str, command: Fence) -> CommandResult:
        """It is out when this returns; the operation ends when its process has."""
        effect = self._fleet.fencing.predict(replica, command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        was = self._fleet.replica(replica)
        if was.state == "fenced":
            return CommandResult(operation=self._known("fence", replica, command), effect=effect)
        for kind in ("drain", "restart"):
            self._supersede(kind, replica, "the replica was fenced")
        instead = self._fleet.fencing.fence(
            replica, command.reason, actor=command.actor, suspect=command.suspect
        )
        started = f"; {instead} starts in its place" if instead else ""

        async def work(handle: Handle) -> None:
            handle.update(message=f"its requests have left it{started}", total=1, done=0)
            await self._until(
                handle, lambda: self._fleet.members.lifecycles[replica].ended, f"{replica} ends", END_S
            )
            handle.update(done=1)

        operation = self._operations.start(
            "fence",
            replica,
            work,
            actor=command.actor,
            reason=command.reason,
            params={"replacement": instead, "suspect": command.suspect, "force": command.force},
            refusable=False,  # it lowers the risk, and is at most one per replica
        )
        return CommandResult(operation=operation, effect=effect)

    def release(self, replica: str, command: Release) -> CommandResult:
        """Start it again; the operation ends when it has loaded."""
        effect = self._fleet.fencing.predict_release(replica)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        if self._fleet.replica(replica).state != "fenced":
            return CommandResult(operation=self._known("release", replica, command), effect=effect)
        self._operations.ensure_room()
        self._fleet.fencing.release(replica, actor=command.actor)
        operation = self._operations.start(
            "release",
            replica,
            lambda handle: self._until_loaded(handle, replica),
            actor=command.actor,
            reason=command.reason,
        )
        return CommandResult(operation=operation, effect=effect)

    # --- restart -------------------------------------------------------------------------------------------

    def restart(self, replica: str, command: Restart) -> CommandResult:
        """Begin; one that is under way is joined."""
        effect = self._predict_restart(replica, command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        under_way = self._operations.running("restart", replica)
        if under_way is not None:
            return CommandResult(operation=under_way, effect=effect)
        self._operations.ensure_room()
        self._supersede("drain", replica, "the replica is restarted")
        if self._fleet.replica(replica).state in DRAINABLE:
            self._fleet.draining.close_for_restart(replica, _as_drain(command))
        operation = self._operations.start(
            "restart",
            replica,
            lambda handle: self._restart(handle, replica, command),
            actor=command.actor,
            reason=command.reason,
            deadline_at=self._wall() + command.deadline_s / self._fleet.pace,
            params={"mode": command.mode, "force": command.force, "on_deadline": "move"},
        )
        return CommandResult(operation=operation, effect=effect)

    def _predict_restart(self, replica: str, command: Restart) -> Effect:
        if replica in self._fleet.members.foreign:
            raise not_ours(f"restart the server behind {replica} where it was started: drain {replica} first")
        status = self._fleet.replica(replica)
        if status.launcher == "joined":
            raise refuse(
                409,
                "joined_by_itself",
                "The server cannot restart it.",
                f"{replica} joined by itself from {status.host}: end its process there, and it joins again; "
                "fence ends it from here",
            )
        if status.state not in RESTARTABLE:
            hint = "; release starts it" if status.state == "fenced" else ""
            raise refuse(
                409, "not_ready", "The replica cannot be restarted.", f"{replica} is {status.state}{hint}"
            )
        again = f"its process ends, and another is started; {replica} then "
        again += "stays drained" if status.spec is not None and status.spec.cordoned else "takes requests"
        if status.state not in DRAINABLE:
            return Effect(summary=[f"{replica} is {status.state}: it is started at once", again])
        drained = self._fleet.draining.predict(replica, _as_drain(command))
        late = f"what it still has after {command.deadline_s:g} s goes on as after a crash"
        return Effect(
            summary=[*drained.summary, late, again], numbers=drained.numbers, warnings=drained.warnings
        )

    async def _restart(self, handle: Handle, replica: str, command: Restart) -> None:
        before = self._fleet.replica(replica).incarnation
        try:
            await self._drained(handle, replica)
            if self._status(replica).state == "ready":
                raise OperationFailed(f"{replica} takes requests: it came back, or was undrained, meanwhile")
            handle.update(blocked_by=[f"{replica} ends"], message="")
            await self._fleet.members.lifecycles[replica].restart(actor=command.actor)
        finally:
            self._fleet.draining.reopen_after_restart(replica)
        await self._until_loaded(handle, replica, after=before)

    async def _drained(self, handle: Handle, replica: str) -> None:
        """Until nothing is left there, or its deadline."""
        while True:
            status = self._status(replica)
            deadline_at = handle.operation.deadline_at
            late = deadline_at is not None and self._wall() >= deadline_at
            if status.state != "draining" or late or status.health in ("stalled", "bad"):
                return
            handle.update(blocked_by=self._running(status), message="draining")
            await asyncio.sleep(POLL_S)

    def _running(self, status: Replica) -> list[str]:
        rows = self._fleet.rows(status.id, "running")
        named = [f"{row.id}: {row.generated_tokens} of at most {row.max_tokens} tokens" for row in rows]
        more = [f"and {len(rows) - MOST_NAMED} more running"] if len(rows) > MOST_NAMED else []
        return [*named[:MOST_NAMED], *more] or [f"{status.id} is {status.state}"]

    # --- shed ----------------------------------------------------------------------------------------------

    def shed(self, command: Shed) -> CommandResult:
        """It is wanted when this returns; the operation ends when no batch runs any more."""
        effect = self._fleet.shedding.predict(command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        self._supersede("shed", "fleet", "it was changed again")
        self._fleet.shedding.apply(command)
        total = self._fleet.shedding.left()

        async def work(handle: Handle) -> None:
            handle.update(total=total, done=0, message="batch is paused" if command.on else "batch goes on")
            while left := self._fleet.shedding.left():
                handle.update(done=max(0, total - left), blocked_by=[f"{left} batch requests run"])
                await asyncio.sleep(POLL_S)
            handle.update(done=total, blocked_by=[])

        operation = self._operations.start(
            "shed",
            "fleet",
            work,
            actor=command.actor,
            reason=command.reason,
            params={"on": command.on},
            refusable=False,  # at most one
        )
        return CommandResult(operation=operation, effect=effect)

    # --- inside --------------------------------------------------------------------------------------------

    def _known(self, kind: str, replica: str, command: Fence | Release) -> Operation:
        state = self._fleet.replica(replica).state
        return self._operations.running(kind, replica) or self._operations.record(
            kind, replica, f"it was {state} already", actor=command.actor, reason=command.reason
        )

    def _supersede(self, kind: str, target: str, why: str) -> None:
        under_way = self._operations.running(kind, target)
        if under_way is not None:
            self._operations.cancel(under_way.id, why)

    def _status(self, replica: str) -> Replica:
        if replica not in self._fleet.replica_ids():
            raise OperationFailed(f"{replica} is gone")
        return self._fleet.replica(replica)

    async def _until_loaded(self, handle: Handle, replica: str, after: int = -1) -> None:
        """Ready, or drained as it was; in a life after ``after``."""
        deadline_at = self._wall() + LOAD_S
        while True:
            status = self._status(replica)
            if status.state in LOADED and status.incarnation > after:
                handle.update(blocked_by=[], message=f"{replica} is {status.state}")
                return
            if status.state in ("failed", "fenced", "stopping") and status.launcher != "joined":
                raise OperationFailed(f"{replica} is {status.state}: {status.error or 'no reason known'}")
            if self._wall() >= deadline_at:
                raise OperationFailed(f"{replica} is {status.state} after {LOAD_S:g} s")
            progress = f" ({status.load_progress:.0%})" if status.load_progress is not None else ""
            why = f": {status.error}" if status.error else ""
            handle.update(blocked_by=[f"{replica} is {status.state}{progress}{why}"])
            await asyncio.sleep(POLL_S)

    async def _until(self, handle: Handle, condition: Callable[[], bool], what: str, within_s: float) -> None:
        deadline_at = self._wall() + within_s
        while not condition():
            if self._wall() >= deadline_at:
                raise OperationFailed(f"{what}: not within {within_s:g} s")
            handle.update(blocked_by=[what])
            await asyncio.sleep(POLL_S)


def _as_drain(command: Restart) -> Drain:
    return Drain(
        mode=command.mode,
        deadline_s=command.deadline_s,
        on_deadline="wait",
        force=command.force,
        reason=command.reason,
        actor=command.actor,
    )
