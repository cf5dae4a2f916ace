"""What becomes of the requests of a replica that died."""

from infer_engine.fleet.endings import MESSAGES, end_as_intended
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.placing import Placer
from infer_engine.replica.handle import ReplicaHandle


def settle_losses(ledger: Ledger, placer: Placer, handle: ReplicaHandle) -> None:
    """Those that have emitted nothing start over elsewhere, unseen by their clients; the others end, since
    without migration nobody continues them."""
    for request in ledger.on(handle.id):
        if request.intent is not None:
            end_as_intended(ledger, request)
        elif request.generation.emitted:
            ledger.finish(request, "error", code="replica_lost", error=MESSAGES["replica_lost"])
        else:
            placer.replace(request)
