"""What happened: events, and steps of the engine."""

from msgspec import Struct, field

from infer_engine.protocol.words import PROTOCOL_VERSION, EventKind, FinishReason, PreemptMode, Tier


class Event(Struct, frozen=True, kw_only=True):
    """One line of the event feed. Each kind is its own word: a finish is no eviction, a preemption no
    finish."""

    seq: int
    at: float
    kind: EventKind
    replica: str | None = None
    request: str | None = None
    tenant: str | None = None
    tier: Tier | None = None
    #: finish: FinishReason; preempt: PreemptMode; reject: error code; replica: the new state; move: draining,
    #: replica_lost, fenced, preempted, refused or rebalanced.
    reason: str | None = None
    #: Blocks taken (admit) or freed (finish, preempt, cache_evict).
    blocks: int | None = None
    #: Generated (finish), or to compute again (preempt, move).
    tokens: int | None = None
    wait_s: float | None = None
    #: Where a move went; ``replica`` is where it came from, which may be the same in its next life. None
    #: when it lost its place and waits for one: that it went on is told then.
    to_replica: str | None = None
    operation: str | None = None
    actor: str | None = None
    #: Server-made text; user text never enters it.
    message: str | None = None
    synthetic: bool = False


class Finished(Struct, frozen=True):
    id: str
    reason: FinishReason


class Preempted(Struct, frozen=True):
    id: str
    mode: PreemptMode


class Step(Struct, frozen=True, kw_only=True):
    """One engine step. What ``finished`` lists was finished by the commit of this step; what ``admitted``
    lists was admitted by its plan. So a request finished in step N can be replaced in step N + 1."""

    replica: str
    incarnation: int
    step: int
    at: float
    duration_s: float
    running: int
    waiting: int
    decode_tokens: int
    prefill_tokens: int
    #: Blocks after the step's commit.
    kv_used: int
    kv_free: int
    kv_cached: int = 0
    admitted: list[str] = []
    finished: list[Finished] = []
    preempted: list[Preempted] = []


class Events(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    events: list[Event] = field(default_factory=list)
