"""Where requests go: to a replica, into the held line while none is there, or back to the client refused."""

import logging
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infer_engine.fleet.departure import Departure, MoveReason
from infer_engine.fleet.endings import CUT, MESSAGES, OVERDUE, end_as_intended
from infer_engine.fleet.foresight import Foresight
from infer_engine.fleet.generation import Generation, Refusal
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.loads import Loads
from infer_engine.fleet.refusals import (
    check_fits_some,
    deadline_unreachable,
    held_full,
    no_replica,
    queue_full,
)
from infer_engine.fleet.router import Choice
from infer_engine.fleet.routing import Routing
from infer_engine.fleet.serving import can_go_on, can_serve, pins, starts_over
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import WaitingReason
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Submit
from infer_engine.runner.runner import RunnerInfo

log = logging.getLogger(__name__)

#: After so many replicas refused it after all, a request ends instead of going round.
MOST_REFUSALS = 3


@dataclass(slots=True)
class Placer:
    """Owns the held line: requests of no replica, by arrival."""

    ledger: Ledger
    handles: Mapping[str, ReplicaHandle]
    loads: Loads
    routing: Routing
    #: Most requests in the held line.
    most_held: int
    #: All replicas are: what one can serve all can, and what one cannot was refused at the door.
    alike: bool = True
    #: Seconds of the fleet's clock in a real one.
    pace: float = 1.0
    held: list[Tracked] = field(default_factory=list[Tracked])
    foresight: Foresight = field(init=False)

    def __post_init__(self) -> None:
        self.foresight = Foresight(self.ledger, self.loads)

    def take(self, generation: Generation) -> None:
        """A new request: placed or held when this returns. Refusal, and nothing left behind, otherwise."""
        spec = generation.spec
        check_fits_some(spec, self._infos())
        self.flush_held()
        admitting = [handle for handle in self._admitting() if self.alike or can_serve(handle, spec)]
        because = self._why_held() if not admitting else None
        if not admitting and because is None:
            raise no_replica()
        if because is not None and len(self.held) >= self.most_held:
            raise held_full(len(self.held), self.most_held, draining=because == "draining")
        late = self.foresight.late(spec, admitting)
        if late is not None:
            raise deadline_unreachable(late, self.pace)
        request = self.ledger.enter(generation)
        if admitting and (self._is_anybody_held_for(admitting) or not self._place(request)):
            self.ledger.forget(request)
            waiting = sum(self.loads.of(handle).waiting for handle in admitting)
            raise queue_full(waiting, self.loads.most_waiting * len(admitting))
        if because is not None:
            request.held_because = because
            generation.log.held(self.ledger.clock(), because)
            self.held.append(request)

    def replace(self, request: Tracked) -> None:
        """A request that lost its place finds another, is held until there is one, or ends where no replica
        will ever come."""
        self.hold(request)
        self.flush_held()

    def hold(self, request: Tracked) -> None:
        """It has no place any more: into the held line, its arrival time kept."""
        if request.state == "running":
            request.waiting_since_s = self.ledger.clock()
        self.ledger.displace(request)
        request.held_because = "slots" if self._admitting() else self._why_held()
        insort(self.held, request, key=lambda each: each.generation.arrived_s)

    def refused(self, request: Tracked, code: str, message: str) -> None:
        """A replica will not run what it was sent: another may, unless the reason holds everywhere. One that
        came from another replica does not end for want of room: it is tried again, first at once and then now
        and then."""
        if request.is_prefilled:  # it got somewhere since it was refused last
            request.refusals = 0
        request.refusals += 1
        moved = request.generation.moves > 0
        soon = request.refusals <= MOST_REFUSALS
        if request.intent is not None:
            end_as_intended(self.ledger, request)
        elif code in ("queue_full", "admission_closed") and (soon or moved):
            if moved and request.generation.replica is not None:
                request.departs(request.generation.replica, "refused")
            self.hold(request)
            if soon:
                self.flush_held()
        elif starts_over(request, code):
            request.start_over()
            self.hold(request)
            self.flush_held()
        elif code == "upstream_busy" or (code == "upstream_failed" and soon):
            if request.generation.replica is not None:
                broke = code == "upstream_failed"
                why: MoveReason = "stream_broke" if broke else "refused"
                note = f"the stream broke: {message}" if broke else message
                request.departs(request.generation.replica, why, note=note)
            self.hold(request)
            self.flush_held()
        else:
            self.ledger.finish(request, "error", code=code, error=MESSAGES.get(code, message))

    def flush_held(self) -> None:
        """Place held requests, oldest first, as far as replicas take them."""
        if not self.held:
            return
        if not self._admitting():
            self._explain_held()
            return
        infos = self._infos()
        for request in list(self.held):
            if not self._still_fits(request, infos) or self._place(request):
                self.held.remove(request)
            elif any(self._can_run(handle, request) for handle in self._admitting()):
                break  # they are full, or cannot be reached
            elif self._can_start_over(request):
                request.start_over()
                if not self._place(request):
                    break
                self.held.remove(request)
            else:
                self._explain(request)

    def _can_start_over(self, request: Tracked) -> bool:
        """Nobody takes requests who could go on where it was broken off; somebody who can have it anew."""
        spec = request.generation.spec
        return starts_over(request, CUT) and any(can_serve(handle, spec) for handle in self._admitting())

    def _still_fits(self, request: Tracked, infos: list[RunnerInfo]) -> bool:
        """False where nobody could ever run it, as it is by now: it has ended."""
        try:
            check_fits_some(request.generation.spec, infos, len(request.generation.emitted))
        except Refusal as refusal:
            problem = refusal.problem
            if starts_over(request, problem.code):
                request.start_over()
                return self._still_fits(request, infos)
            self.ledger.finish(request, "error", code=problem.code, error=problem.detail)
            return False
        return True

    def end_overdue(self) -> None:
        """Held requests whose deadline has passed end; a replica sees to those that it has."""
        now_s = self.ledger.clock()
        for request in list(self.held):
            left_s = request.generation.left_s(now_s)
            if left_s is not None and left_s <= 0:
                self.held.remove(request)
                self.ledger.finish(request, "error", code=OVERDUE, error=MESSAGES[OVERDUE])

    def drop_held(self, request: Tracked) -> bool:
        """Take it out of the held line; False when it is not there."""
        if request not in self.held:
            return False
        self.held.remove(request)
        return True

    def _infos(self) -> list[RunnerInfo]:
        """What they told who may come to run it; of those that are alike one speaks for all."""
        infos = [each.info for each in self.handles.values() if each.info is not None]
        return infos[:1] if self.alike else infos

    def any_info(self) -> RunnerInfo | None:
        """What a loaded replica told of the model; all replicas of a fleet are alike."""
        return next((handle.info for handle in self.handles.values() if handle.info is not None), None)

    # --- inside --------------------------------------------------------------------------------------------

    def _admitting(self) -> list[ReplicaHandle]:
        return [handle for handle in self.handles.values() if handle.admits]

    def _why_held(self) -> WaitingReason | None:
        """Why no replica takes requests just now; None when none will."""
        states = {handle.state for handle in self.handles.values()}
        returns = any(each.may_return and each.state == "failed" for each in self.handles.values())
        if states & {"starting", "restarting"} or returns:
            return "loading"
        return "draining" if states & {"draining", "drained"} else None

    def _is_anybody_held_for(self, admitting: list[ReplicaHandle]) -> bool:
        """Who waits for a server that can do what others cannot keeps nobody else waiting."""
        return any(self._can_run(handle, request) for request in self.held for handle in admitting)

    def _can_run(self, handle: ReplicaHandle, request: Tracked) -> bool:
        return self.alike or can_go_on(handle, request)

    def _explain_held(self) -> None:
        for request in list(self.held):
            self._explain(request)

    def _explain(self, request: Tracked) -> None:
        """None that could run it takes requests: why it waits, or its end where none ever will."""
        because = self._why_held()
        if because is None:
            self.held.remove(request)
            self._end_unplaceable(request)
        else:
            request.held_because = because

    def _end_unplaceable(self, request: Tracked) -> None:
        problem = no_replica().problem
        self.ledger.finish(request, "error", code=problem.code, error=problem.detail)

    def _place(self, request: Tracked) -> bool:
        """Send it to the best replica that can be reached; False when there is none with room. One that has
        stalled gets it only when all have."""
        candidates = {handle.id: handle for handle in self._admitting() if self._can_run(handle, request)}
        while candidates:
            choice = (
                self._destination(request, candidates)
                or self._beside_parent(request, candidates)
                or self.routing.choose(request, candidates)
                or self._shortest_queue(request, candidates)
            )
            if choice is None:
                return False
            chosen = choice.replica
            message = _submit_message(request, self.ledger.clock(), self._parent_on(request, chosen))
            if candidates[chosen].submit(message):
                self.ledger.place(request, chosen, str(choice))
                handle = candidates[chosen]
                request.pinned = pins(handle, request)
                self.routing.placed(request, handle, choice)
                if handle.work_since_s is None:
                    handle.work_since_s = self.ledger.clock()
                self._tell_move(request, chosen)
                return True
            log.warning("replica %s cannot be reached; placing %s elsewhere", chosen, request.id)
            del candidates[chosen]
        return False

    def _destination(self, request: Tracked, candidates: Mapping[str, ReplicaHandle]) -> Choice | None:
        """Where somebody wants it, if that takes requests."""
        to = request.departure.to if request.departure is not None else None
        return Choice(to, "moved there", len(candidates)) if to is not None and to in candidates else None

    def _shortest_queue(self, request: Tracked, candidates: Mapping[str, ReplicaHandle]) -> Choice | None:
        """For a sequence that continues: no queue is too full for one whose client reads already."""
        if not request.generation.emitted:
            return None
        shortest = min(candidates, key=lambda replica: self.loads.of(candidates[replica]).waiting)
        return Choice(shortest, "shortest queue", len(candidates))

    def tell_waiting(self, request: Tracked) -> None:
        """Where nobody has taken it: that it lost its place is told now, and not when it has another."""
        departure = request.departure
        if departure is not None and not departure.told and request in self.held:
            self._tell(request, departure, None)
            request.departure = replace(departure, told=True)

    def _tell_move(self, request: Tracked, replica: str) -> None:
        departure, request.departure = request.departure, None
        if departure is not None:
            request.generation.moves += 1
            self._tell(request, departure, replica)

    def _tell(self, request: Tracked, departure: Departure, replica: str | None) -> None:
        generation = request.generation
        self.ledger.feed.event(
            "move",
            replica=departure.source,
            to_replica=replica,
            request=request.id,
            tenant=generation.spec.tenant,
            tier=generation.spec.tier,
            reason=departure.why,
            tokens=request.known_tokens if departure.has_run else None,
            actor=departure.actor or None,
            message=departure.note or _where_to(departure, replica),
            synthetic=generation.spec.synthetic,
        )

    def _beside_parent(self, request: Tracked, candidates: Mapping[str, ReplicaHandle]) -> Choice | None:
        """The replica where its prompt is, or is about to be, if that has room."""
        parent = self.ledger.live.get(request.generation.spec.fork_of or "")
        handle = candidates.get(parent.generation.replica or "") if parent is not None else None
        if handle is None or self._parent_on(request, handle.id) is None:
            return None
        if self.loads.of(handle).is_full or self.routing.is_stalled(handle):
            return None
        return Choice(handle.id, "beside its first choice", len(candidates))

    def _parent_on(self, request: Tracked, replica: str) -> str | None:
        """The live request on ``replica`` whose prompt it can share. What it has generated itself is not
        there, so a sequence that continues shares nothing."""
        generation = request.generation
        parent = self.ledger.live.get(generation.spec.fork_of or "")
        if parent is None or generation.emitted or parent.generation.replica != replica:
            return None
        return parent.id


def _where_to(departure: Departure, replica: str | None) -> str | None:
    if replica is None:
        return "waits for a replica"
    return f"goes on at {replica} again" if replica == departure.source else None


def _submit_message(request: Tracked, now_s: float, fork_of: str | None) -> Submit:
    generation = request.generation
    spec = generation.spec
    return Submit(
        id=generation.id,
        prompt=list(spec.prompt),
        max_tokens=spec.max_tokens,
        emitted=list(generation.emitted),
        tenant=spec.tenant,
        tier=spec.tier,
        priority=spec.priority,
        stop_token_ids=list(spec.stop_token_ids),
        sampling=spec.sampling,
        synthetic=spec.synthetic,
        waited_s=now_s - generation.arrived_s,
        arrived_s=generation.arrived_s,
        deadline_in_s=generation.left_s(now_s),
        fork_of=fork_of,
    )
