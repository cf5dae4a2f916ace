"""Preempting one request on an operator's word: it goes on later where it is, or now on another replica."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.fleet.health import health
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.moving import Moving
from infer_engine.fleet.pacing import Leaver
from infer_engine.fleet.serving import can_go_on, is_bound
from infer_engine.fleet.tracked import Tracked
from infer_engine.fleet.unknown import unknown_replica, unknown_request
from infer_engine.protocol import Effect, Preempt
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import PreemptOne

#: A request is left alone for so long after it was preempted.
LEAST_PAUSE_S = 1.0


@dataclass(slots=True)
class Preempting:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    moving: Moving

    def predict(self, request_id: str, command: Preempt) -> Effect:
        """Refusal (404, 409) when it may not be."""
        request = self._request(request_id)
        if command.to is not None:
            target = self._target(request, command.to)
            if is_bound(request, [target]):
                raise _bound(request, target)
            return self._predict_move(request, target)
        source = self.handles[str(request.generation.replica)]
        if not can_go_on(source, request):
            raise _bound(request, source)
        self._check_preemptible(request)
        waiting = source.observation.waiting if source.observation is not None else None
        summary = [
            f"{request.id} leaves the batch of {source.id}: {request.blocks:,} blocks are free",
            "it keeps its tokens and goes to the head of its tier; its stream waits until it is admitted",
        ]
        if not waiting:
            summary.append("nobody waits there: it is admitted again in the step after")
        return Effect(
            summary=summary,
            numbers={
                "freed_blocks": float(request.blocks),
                "recompute_tokens": float(request.known_tokens),
                "moved": 0.0,
                "waiting": None if waiting is None else float(waiting),
            },
        )

    def preempt(self, request_id: str, command: Preempt) -> None:
        """Have its replica do it between two steps. Refusal when it may not be."""
        self.predict(request_id, command)
        request = self._request(request_id)
        if command.to is not None:
            self.moving.send(request, command.to, command.actor)
            return
        request.preempt_actor = command.actor
        self.handles[str(request.generation.replica)].tell(PreemptOne(id=request.id))

    # --- inside --------------------------------------------------------------------------------------------

    def _request(self, request_id: str) -> Tracked:
        request = self.ledger.live.get(request_id)
        if request is None:
            row = self.ledger.row(request_id)
            if row is None:
                raise unknown_request(request_id)
            raise _not_running(request_id, f"it has finished ({row.finish_reason})")
        if request.intent is not None:
            raise _not_running(request_id, "it is being cancelled")
        if request.departure is not None:
            raise _not_running(request_id, "it is on its way to another replica")
        if request.state != "running":
            raise _not_running(request_id, "it waits")
        return request

    def _check_preemptible(self, request: Tracked) -> None:
        since_s = None if request.preempted_s is None else self.ledger.clock() - request.preempted_s
        if since_s is not None and since_s < LEAST_PAUSE_S:
            raise refuse(
                409,
                "preempted_recently",
                "It has just been preempted.",
                f"{request.id} was preempted {since_s:.1f} s ago; it is left alone for {LEAST_PAUSE_S:g} s",
                numbers={"since_s": since_s, "least_s": LEAST_PAUSE_S},
            )
        info = self.handles[str(request.generation.replica)].info
        if info is not None and request.needs_blocks(info.block_size) > info.kv_blocks:
            raise refuse(
                409,
                "fills_pool",
                "It would never be admitted again.",
                f"{request.id} and its next token take all {info.kv_blocks:,} blocks of its replica",
                numbers={"needs_blocks": request.needs_blocks(info.block_size), "kv_blocks": info.kv_blocks},
            )

    def _target(self, request: Tracked, to: str) -> ReplicaHandle:
        target = self.handles.get(to)
        if target is None:
            raise unknown_replica(to, field="to")
        if to == request.generation.replica:
            raise refuse(409, "already_there", "It runs there.", f"{request.id} runs on {to}", field="to")
        if not target.admits:
            raise refuse(
                409,
                "not_ready",
                "The replica takes no requests.",
                f"replica {to} is {target.state}",
                field="to",
            )
        return target

    def _predict_move(self, request: Tracked, target: ReplicaHandle) -> Effect:
        source = self.handles[str(request.generation.replica)]
        rooms = {room.replica: room for room in self.moving.rooms(source)}
        block_size = target.info.block_size if target.info is not None else 1
        leaver = Leaver(
            id=request.id,
            tier=request.generation.spec.tier,
            arrived_s=request.generation.arrived_s,
            tokens=request.known_tokens,
            blocks=request.needs_blocks(block_size),
        )
        room = rooms.get(target.id)
        waits = room is not None and not room.fits(leaver)
        summary = [
            f"{request.id} leaves {source.id} in its next step: {request.blocks:,} blocks are free there",
            f"it goes on at {target.id}, which computes {leaver.tokens:,} tokens again and takes "
            f"{leaver.blocks:,} blocks; its stream stands still meanwhile",
        ]
        warnings: list[str] = []
        if waits:
            warnings.append(f"{target.id} has no room for it now: it will wait there")
        for handle in (source, target):
            work = bool(self.ledger.on(handle.id))
            if health(handle, self.ledger.clock(), has_work=work) == "stalled":
                warnings.append(
                    f"{handle.id} is stalled: nothing moves before it answers or its process ends"
                )
        return Effect(
            summary=summary,
            numbers={
                "freed_blocks": float(request.blocks),
                "recompute_tokens": float(leaver.tokens),
                "moved": 1.0,
                "will_wait": float(waits),
            },
            warnings=warnings,
        )


def _bound(request: Tracked, replica: ReplicaHandle) -> Refusal:
    """A constrained answer that was begun, and can only be gone on with where nobody breaks it off."""
    return refuse(
        409,
        "bound",
        "It cannot go on once it is broken off.",
        f"{request.id} must match something, and {replica.id} cannot go on within that from where it is",
    )


def _not_running(request_id: str, why: str) -> Refusal:
    return refuse(409, "not_running", "It does not run.", f"{request_id}: {why}; only what runs is preempted")
