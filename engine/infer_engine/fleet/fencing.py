"""Taking a broken replica out at once and for good, and giving it another chance."""

from dataclasses import dataclass

from infer_engine.fleet.drain import MIN_READY
from infer_engine.fleet.endings import MESSAGES
from infer_engine.fleet.generation import refuse
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.members import Members
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.resizing import Resizing
from infer_engine.fleet.serving import is_bound
from infer_engine.fleet.tracked import Tracked
from infer_engine.fleet.unknown import unknown_replica
from infer_engine.protocol import Effect, Fence
from infer_engine.replica.handle import ReplicaHandle

#: What a fence says of itself where nobody gave a reason.
NO_REASON = "an operator fenced it"
SUSPECT = "replica_suspect"


@dataclass(slots=True)
class Fencing:
    members: Members
    ledger: Ledger
    placer: Placer
    resizing: Resizing

    def predict(self, replica: str, command: Fence) -> Effect:
        """Refusal where it may not be."""
        handle = self._handle(replica)
        if handle.fenced is not None:
            return Effect(summary=[f"{replica} is fenced already ({handle.fenced}): nothing will change"])
        others = [each for each in self.members.handles.values() if each is not handle and each.admits]
        if handle.state == "ready" and len(others) < MIN_READY and not command.force:
            raise refuse(
                409,
                "would_break_min_ready",
                "It is the last ready replica.",
                f"fencing {replica} would leave {len(others)} ready replicas, at least {MIN_READY} must "
                "stay; force overrides this",
                numbers={"ready": len(others) + 1, "ready_after": len(others), "min_ready": MIN_READY},
            )
        requests = self.ledger.on(replica)
        fresh = sum(not request.generation.emitted for request in requests)
        again = sum(_starts_over(request) for request in requests) if command.suspect else 0
        ends = len(requests) - fresh - again
        leave = f"{fresh} that emitted nothing start over, {ends} go on elsewhere with what they have"
        if command.suspect:
            leave = f"{fresh + again} of whose answer nothing was sent start over, {ends} end"
        killed = "its process is killed, and none "
        killed += "may join in its place" if handle.joined else "is started"
        if replica in self.members.foreign:
            killed = "its streams are closed, and it is not looked at"
        summary = [
            f"{replica} takes no more requests, {killed} before release",
            f"its {len(requests)} request{'' if len(requests) == 1 else 's'} leave it at once: {leave}",
        ]
        obstacle = self.resizing.replacement_obstacle(handle)
        summary.append(
            "another replica is started in its place"
            if obstacle is None
            else f"no other replica is started in its place: {obstacle}"
        )
        warnings = [] if others else ["no ready replica will be left: requests wait for one"]
        bound = sum(is_bound(request, others) for request in requests) if others else 0
        if bound and not command.suspect:
            warnings.append(
                f"{bound} of them end with an error (constraint_cut): part of the answer is with the client, "
                "and no other replica can go on within what it must match"
            )
        if command.suspect and ends:
            warnings.append(
                f"{ends} requests end with an error (replica_suspect): they have tokens that are not to be "
                "trusted, of which their clients have some, and nothing goes on from those"
            )
        numbers: dict[str, float | None] = {
            "requests": float(len(requests)),
            "start_over": float(fresh + again),
            "ready_after": float(len(others)),
            "replacement": float(obstacle is None),
        }
        return Effect(summary=summary, numbers=numbers, warnings=warnings)

    def fence(self, replica: str, why: str, *, actor: str = "", suspect: bool = False) -> str | None:
        """Now, without asking it. The id of the replica that was started in its place. ``suspect``: nothing
        goes on from tokens that it made."""
        handle = self._handle(replica)
        if handle.fenced is not None:
            return None
        for request in self.ledger.on(replica) if suspect else ():
            if _starts_over(request):
                request.start_over()
            elif request.generation.emitted and request.intent is None:
                self.ledger.finish(request, "error", code=SUSPECT, error=MESSAGES[SUSPECT])
        self.members.lifecycles[replica].fence(why or NO_REASON, actor=actor)
        return self.resizing.replace(handle)

    def predict_release(self, replica: str) -> Effect:
        handle = self._handle(replica)
        if handle.fenced is None:
            return Effect(summary=[f"{replica} is not fenced ({handle.state}): nothing will change"])
        again = "may join again" if handle.joined else "is started again"
        summary = [f"{replica} {again}; it was fenced because: {handle.fenced}"]
        summary.append(
            "it stays drained once it has loaded"
            if handle.cordoned
            else "it takes requests once it has loaded"
        )
        launched = handle.joined is None
        present, wanted = len(self.resizing.present()) + launched, self.resizing.wanted.replicas
        warnings = (
            [f"{present} replicas will be there, {wanted} are wanted: scale takes one out again"]
            if launched and present > wanted
            else []
        )
        return Effect(summary=summary, numbers={"replicas_after": float(present)}, warnings=warnings)

    def release(self, replica: str, *, actor: str = "") -> None:
        if self._handle(replica).fenced is not None:
            self.members.lifecycles[replica].release(actor=actor)

    def _handle(self, replica: str) -> ReplicaHandle:
        handle = self.members.handles.get(replica)
        if handle is None:
            raise unknown_replica(replica)
        return handle


def _starts_over(request: Tracked) -> bool:
    """It has tokens, of which its client has none."""
    generation = request.generation
    return bool(generation.emitted) and request.intent is None and generation.may_start_over
