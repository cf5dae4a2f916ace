"""How a request ended: as its replica reports it, or as somebody asked for."""

from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import FinishReason

OVERDUE = "deadline_exceeded"
#: Of a constrained answer that was broken off where nobody else can go on.
CUT = "constraint_cut"

#: What to tell the client of a request that did not end by itself, by code.
MESSAGES = {
    "cancelled_by_operator": "an operator cancelled the request",
    "replica_draining": "the replica that ran the request was drained",
    "replica_lost": "several replicas in a row were lost while they ran the request",
    "replica_suspect": "the replica that ran the request was taken out, and its output is not to be trusted",
    "shutting_down": "the server stopped before the request was complete",
    "kv_exhausted": "the sequence outgrew the replica's KV memory although nothing else ran there",
    "constraint_failed": "the answer cannot go on within its constraint: too complex, or no token can follow",
    CUT: "the answer was broken off, and no server that is left can go on within what it must match",
    "upstream_refused": "the server behind the gateway would not serve the request",
    "upstream_not_understood": "the server behind the gateway answered what no such server answers",
    "upstream_failed": "the servers behind the gateway failed several times while they served the request",
    OVERDUE: "the request's deadline passed before it was complete",
}

Ending = tuple[FinishReason, str | None, str | None]


def ending(request: Tracked, reported: FinishReason, error_code: str | None = None) -> Ending:
    """Reason, code and message of a request of which its replica reports ``reported``. A stop string was seen
    whatever else happened; what finished by itself before it could be cancelled did finish."""
    intent = request.intent
    if intent is not None and intent.reason == "stop":
        return "stop", None, None
    if intent is not None and reported == "cancelled":
        return "cancelled", intent.code, MESSAGES.get(intent.code)
    return reported, error_code, None if error_code is None else MESSAGES.get(error_code, error_code)


def end_as_intended(ledger: Ledger, request: Tracked) -> None:
    """End a request that was asked to end and that no replica has to give up."""
    reason, code, error = ending(request, "cancelled")
    ledger.finish(request, reason, code=code, error=error)
