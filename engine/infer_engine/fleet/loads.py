"""How loaded each replica is, for the router: what the ledger has on it, dispatched but unreported requests
included.

Nothing is added up over time: a load is worked out of the ledger when it is asked for, after anything changed
there, so what is undone (an end, a refusal, a loss, a move) cannot be left counted. In between it is kept up
to date by hand: a burst costs the same for each request, and a step that only decoded costs nothing, however
many sequences it had.
"""

from dataclasses import dataclass, field

from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.router import Load
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import FromReplica, StepReport


@dataclass(slots=True)
class Loads:
    ledger: Ledger
    #: Most requests in one replica's queue.
    most_waiting: int
    _known: dict[str, Load] = field(default_factory=dict[str, Load])

    def of(self, handle: ReplicaHandle) -> Load:
        """The load of a replica that has loaded. Valid until something changes."""
        load = self._known.get(handle.id)
        if load is None:
            load = self._known[handle.id] = self._compute(handle)
        return load

    def placed(self, handle: ReplicaHandle, request: Tracked) -> None:
        """``request`` has just been sent there."""
        load = self._known.get(handle.id)
        if load is not None and handle.info is not None:
            load.waiting += 1
            load.waiting_batch += request.generation.spec.tier == "batch"
            load.queued_prefill_tokens += request.queued_prefill_tokens()
            load.kv_promised_blocks += request.needs_blocks(handle.info.block_size)
            load.base_steps = None

    def changed(self, replica: str) -> None:
        """Something else changed there: compute it anew when it is next asked for."""
        self._known.pop(replica, None)

    def heard(self, handle: ReplicaHandle, message: FromReplica) -> None:
        """``message`` came from it."""
        load = self._known.get(handle.id)
        if load is None:
            return
        if isinstance(message, StepReport) and not (
            message.admitted or message.preempted or message.finished or message.prefill_tokens
        ):
            load.kv_used_blocks = message.kv_used
            load.base_steps = None
        else:
            self.changed(handle.id)

    def _compute(self, handle: ReplicaHandle) -> Load:
        ready = handle.ready
        if ready is None:
            raise RuntimeError(f"replica {handle.id} is asked for its load before it is ready")
        requests = self.ledger.on(handle.id)
        waiting = [request for request in requests if request.state == "waiting"]
        return Load(
            replica=handle.id,
            running=len(requests) - len(waiting),
            waiting=len(waiting),
            slots=handle.slots or handle.limits["max_running"],
            queued_prefill_tokens=sum(request.queued_prefill_tokens() for request in requests),
            token_budget=handle.limits["token_budget"],
            kv_used_blocks=handle.kv_used or 0,
            kv_promised_blocks=sum(request.needs_blocks(ready.info.block_size) for request in waiting),
            kv_total_blocks=ready.info.kv_blocks,
            most_waiting=self.most_waiting,
            waiting_batch=sum(request.generation.spec.tier == "batch" for request in waiting),
        )
