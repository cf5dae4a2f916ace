"""How loaded each replica is, for the router: what the ledger has on it, dispatched but unreported requests
included.

Computed once per message of the replica and kept up to date by hand in between, so that a burst of
requests costs the same each, however long the queues are.
"""

from dataclasses import dataclass, field, replace

from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.router import Load
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle


@dataclass(slots=True)
class Loads:
    ledger: Ledger
    #: Most requests in one replica's queue.
    most_waiting: int
    _known: dict[str, Load] = field(default_factory=dict[str, Load])

    def of(self, handle: ReplicaHandle) -> Load:
        """The load of a replica that has loaded."""
        load = self._known.get(handle.id)
        if load is None:
            load = self._known[handle.id] = self._compute(handle)
        return load

    def placed(self, handle: ReplicaHandle, request: Tracked) -> None:
        """``request`` has just been sent there."""
        load = self._known.get(handle.id)
        if load is not None and handle.info is not None:
            self._known[handle.id] = replace(
                load,
                waiting=load.waiting + 1,
                queued_prefill_tokens=load.queued_prefill_tokens + request.queued_prefill_tokens(),
                kv_taken_blocks=load.kv_taken_blocks + request.needs_blocks(handle.info.block_size),
            )

    def changed(self, replica: str) -> None:
        """Something else changed there: compute it anew when it is next asked for."""
        self._known.pop(replica, None)

    def _compute(self, handle: ReplicaHandle) -> Load:
        ready = handle.ready
        if ready is None:
            raise RuntimeError(f"replica {handle.id} is asked for its load before it is ready")
        requests = self.ledger.on(handle.id)
        waiting = [request for request in requests if request.state == "waiting"]
        promised = sum(request.needs_blocks(ready.info.block_size) for request in waiting)
        return Load(
            replica=handle.id,
            running=len(requests) - len(waiting),
            waiting=len(waiting),
            slots=handle.limits["max_running"],
            queued_prefill_tokens=sum(request.queued_prefill_tokens() for request in requests),
            token_budget=handle.limits["token_budget"],
            kv_taken_blocks=(handle.kv_used or 0) + promised,
            kv_total_blocks=ready.info.kv_blocks,
            most_waiting=self.most_waiting,
        )
