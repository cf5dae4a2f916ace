"""What becomes of the requests of a replica that died."""

from infer_engine.fleet.departure import MoveReason
from infer_engine.fleet.endings import MESSAGES, end_as_intended
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle

#: A request that was there when so many replicas in a row died of their own before it got a token is taken
#: for what killed them, and kills no more.
MOST_LOSSES = 3


def settle_losses(ledger: Ledger, placer: Placer, handle: ReplicaHandle) -> None:
    """They go on elsewhere from what they have emitted, unseen by their clients, or are held until there is
    somewhere to go. Needs nothing of the replica, which may even be alive: what it says of them counts no
    more."""
    why: MoveReason = "fenced" if handle.state == "fenced" else "replica_lost"
    homeless: list[Tracked] = []
    for request in ledger.on(handle.id):
        end = request.generation.own_end()
        if request.intent is not None:
            end_as_intended(ledger, request)
        elif end is not None:
            ledger.finish(request, end)
        elif _is_suspect(request, handle):
            ledger.finish(request, "error", code="replica_lost", error=MESSAGES["replica_lost"])
        else:
            request.departs(handle.id, why)
            placer.hold(request)
            homeless.append(request)
    placer.flush_held()
    for request in homeless:
        placer.tell_waiting(request)


def _is_suspect(request: Tracked, handle: ReplicaHandle) -> bool:
    if request.is_prefilled:
        request.losses = 0
    if handle.own_death:
        request.losses += 1
    return request.losses >= MOST_LOSSES
