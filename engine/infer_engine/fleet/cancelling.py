"""Asking for the end of requests. The replica frees the blocks and says so; only then have they ended."""

from collections.abc import Mapping

from infer_engine.fleet.endings import end_as_intended
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.tracked import Intent
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Abort


def cancel(
    ledger: Ledger, placer: Placer, handles: Mapping[str, ReplicaHandle], request_id: str, intent: Intent
) -> bool:
    """True when the request is live: it will end under ``intent``, unless it had been asked to end before or
    finishes by itself first."""
    request = ledger.live.get(request_id)
    if request is None:
        return False
    if request.intent is not None:
        return True
    request.intent = intent
    if placer.drop_held(request):
        end_as_intended(ledger, request)
    else:
        replica = request.generation.replica
        if replica is not None:
            handles[replica].tell(Abort(id=request_id, reason=intent.reason))
    return True


def cancel_all(
    ledger: Ledger, handle: ReplicaHandle, *, code: str = "replica_draining", actor: str = ""
) -> int:
    """Ask for the end of all that the replica has; returns how many that are."""
    requests = ledger.on(handle.id)
    for request in requests:
        if request.intent is None:
            request.intent = Intent("cancelled", code, actor)
            handle.tell(Abort(id=request.id))
    return len(requests)
