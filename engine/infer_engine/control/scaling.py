"""Scaling as an operation: one at a time, replicas up until they are ready, or down one after another."""

import asyncio
from collections.abc import Callable

from infer_engine.control.operations import Handle, OperationFailed, Operations
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.protocol import CommandResult, Drain, Replica, Scale

POLL_S = 0.1
#: How long new replicas may take to load.
LOAD_S = 900.0


class Scales:
    """``wall`` gives Unix seconds."""

    def __init__(self, fleet: Fleet, operations: Operations, wall: Callable[[], float]) -> None:
        self._fleet = fleet
        self._operations = operations
        self._wall = wall

    def scale(self, command: Scale) -> CommandResult:
        """It is wanted when this returns. Refusal 409 with the id of one under way."""
        under_way = self._operations.running("scale")
        if under_way is not None and not command.dry_run:
            raise refuse(
                409,
                "scale_under_way",
                "Another scale is under way.",
                f"{under_way.id} has not ended; it can be watched and waited for",
                numbers={"replicas": under_way.params.get("replicas")},
            )
        effect = self._fleet.resizing.predict(command)
        if command.dry_run:
            return CommandResult(operation=None, effect=effect)
        self._operations.ensure_room()
        started, victims = self._fleet.resizing.begin(command)
        operation = self._operations.start(
            "scale",
            "fleet",
            lambda handle: self._work(handle, command, started, victims),
            actor=command.actor,
            reason=command.reason,
            params={
                "replicas": command.replicas,
                "started": started,
                "ended": victims,
                "force": command.force,
            },
        )
        return CommandResult(operation=operation, effect=effect)

    async def _work(self, handle: Handle, command: Scale, started: list[str], victims: list[str]) -> None:
        total = len(started) + len(victims)
        handle.update(total=total, done=0)
        if started:
            await self._until_ready(handle, started)
        left = list(victims)
        try:
            while left:
                handle.update(done=total - len(left))
                await self._take_out(handle, left[0], command)
                del left[0]
        except Exception:
            # Not when the server ends: what was wanted is then for the next one to begin with.
            self._fleet.resizing.stay(left)
            raise
        handle.update(done=total, blocked_by=[], message=f"{command.replicas} replicas")

    async def _until_ready(self, handle: Handle, started: list[str]) -> None:
        deadline_at = self._wall() + LOAD_S / self._fleet.pace
        while True:
            known = [each for each in started if each in self._fleet.replica_ids()]
            missing = [
                each for each in map(self._fleet.replica, known) if each.state not in ("ready", "drained")
            ]
            handle.update(
                done=len(started) - len(missing), blocked_by=[_shortfall(status) for status in missing]
            )
            if not missing:
                return
            final = [status for status in missing if status.state in ("failed", "fenced", "stopping")]
            if len(final) == len(missing) or self._wall() >= deadline_at:
                raise OperationFailed("; ".join(map(_shortfall, missing)))
            await asyncio.sleep(POLL_S)

    async def _take_out(self, handle: Handle, victim: str, command: Scale) -> None:
        """Drain it for as long as it may take, then end it."""
        if self._fleet.replica(victim).state == "ready":
            await self._begin_drain(handle, victim, command)
        deadline_at = self._wall() + command.deadline_s / self._fleet.pace
        while self._fleet.replica(victim).state == "draining" and self._wall() < deadline_at:
            status = self._fleet.replica(victim)
            if status.health in ("stalled", "bad"):
                break
            handle.update(
                blocked_by=[f"{victim} drains: {status.running or 0} running, {status.waiting or 0} waiting"]
            )
            await asyncio.sleep(POLL_S)
        if self._fleet.replica(victim).state == "ready":
            raise OperationFailed(f"{victim} takes requests again: it came back, or was undrained, meanwhile")
        handle.update(blocked_by=[f"{victim} ends"])
        await self._fleet.resizing.remove(victim, actor=command.actor)

    async def _begin_drain(self, handle: Handle, victim: str, command: Scale) -> None:
        """As soon as no other replica drains: somebody else's drain goes first."""
        drain = Drain(deadline_s=None, force=command.force, actor=command.actor, reason=command.reason)
        while True:
            try:
                return self._fleet.draining.drain(victim, drain)
            except Refusal as refusal:
                if refusal.problem.status != 429:
                    raise OperationFailed(f"{victim}: {refusal}") from refusal
                handle.update(blocked_by=[f"{victim}: {refusal}"])
            await asyncio.sleep(POLL_S)


def _shortfall(status: Replica) -> str:
    progress = f" ({status.load_progress:.0%})" if status.load_progress is not None else ""
    why = f": {status.error}" if status.error else ""
    return f"{status.id} is {status.state}{progress}{why}"
