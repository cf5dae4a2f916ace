"""The watch stream, and how it begins."""

from msgspec import Struct

from infer_engine.protocol.blocks import BlockRun
from infer_engine.protocol.events import Event, Step
from infer_engine.protocol.fleet import Fleet, Totals
from infer_engine.protocol.operations import Operation
from infer_engine.protocol.replica import Replica
from infer_engine.protocol.requests import RequestRow
from infer_engine.protocol.words import PROTOCOL_VERSION, Role


class SnapshotBegin(Struct, frozen=True, kw_only=True, tag="snapshot-begin"):
    protocol_version: int = PROTOCOL_VERSION
    server_version: str
    capabilities: list[str]


class SnapshotEnd(Struct, frozen=True, tag="snapshot-end"):
    pass


class FleetDelta(Struct, frozen=True, kw_only=True, tag="fleet"):
    fleet: Fleet
    totals: Totals


class ReplicaFrame(Struct, frozen=True, kw_only=True, tag="frame"):
    """One replica as of one step: all its parts are from the same moment. A ``None`` part did not change
    (or was not asked for). In a snapshot ``rows``, ``order`` and ``blocks`` are whole; in deltas ``rows``
    and ``blocks`` hold what changed, ``removed`` the requests that left, ``order`` the whole new order
    when it changed: running requests in batch order, then waiting ones in admission order.

    An empty ``blocks`` says that the map is unknown: the replica died or has not told yet, and what was known
    of its blocks holds no more. So does a new ``status.incarnation``: its blocks come whole."""

    replica: str
    step: int
    at: float
    status: Replica | None = None
    rows: list[RequestRow] | None = None
    removed: list[str] = []
    order: list[str] | None = None
    blocks: list[BlockRun] | None = None


class ReplicaGone(Struct, frozen=True, kw_only=True, tag="gone"):
    replica: str


class HeldDelta(Struct, frozen=True, kw_only=True, tag="held"):
    """Requests that no replica has: they wait at the gateway (loading, draining). Always the whole list."""

    rows: list[RequestRow]


class StepDelta(Struct, frozen=True, kw_only=True, tag="step"):
    step: Step


class EventDelta(Struct, frozen=True, kw_only=True, tag="event"):
    event: Event


class OperationDelta(Struct, frozen=True, kw_only=True, tag="operation"):
    operation: Operation


class Heartbeat(Struct, frozen=True, kw_only=True, tag="heartbeat"):
    at: float


class Reset(Struct, frozen=True, kw_only=True, tag="reset"):
    """The client was too slow and its queue was dropped: a fresh snapshot follows on the same connection."""

    why: str
    dropped: int


Delta = (
    SnapshotBegin
    | SnapshotEnd
    | FleetDelta
    | ReplicaFrame
    | ReplicaGone
    | HeldDelta
    | StepDelta
    | EventDelta
    | OperationDelta
    | Heartbeat
    | Reset
)


class Envelope(Struct, frozen=True, kw_only=True):
    """One SSE message: ``id: epoch:seq``, ``event:`` the delta's tag, ``data:`` this struct as JSON.
    ``prev`` is the ``seq`` of the message sent before it on this connection (0 for the first), so a gap
    can be seen."""

    epoch: str
    seq: int
    prev: int
    at: float
    delta: Delta


class Hello(Struct, frozen=True, kw_only=True):
    """Answer of ``GET /control/v1/hello``."""

    protocol_version: int = PROTOCOL_VERSION
    server_version: str
    epoch: str
    capabilities: list[str]
    fleet: Fleet
    #: Who the server takes the caller for, and what that one may do; None from a server that does not say.
    subject: str | None = None
    role: Role | None = None
