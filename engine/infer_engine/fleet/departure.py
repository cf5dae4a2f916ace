"""Why a request is to go on elsewhere, from where, and on whose word."""

from dataclasses import dataclass
from typing import Literal

#: draining: its replica is drained; replica_lost: its process died; fenced: it was taken out of service;
#: preempted: an operator moved it; refused: the replica that it came to would not have it after all;
#: stream_broke: the server behind the gateway broke its stream, or would not begin one;
#: rebalanced: it waited there beside room elsewhere.
MoveReason = Literal[
    "draining", "replica_lost", "fenced", "preempted", "refused", "stream_broke", "rebalanced"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """It stands until the request has its next place."""

    #: The replica that it leaves or has left.
    source: str
    why: MoveReason
    #: It ran there: what was computed is computed again at its next place.
    has_run: bool
    #: Where it is wanted; any replica will do when that one cannot take it.
    to: str | None = None
    actor: str = ""
    #: More of why, in a few words of ours.
    note: str = ""
    #: That it has no place was told when it lost it.
    told: bool = False
