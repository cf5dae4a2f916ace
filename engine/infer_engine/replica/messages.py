"""What the engine server and a replica process say to each other: msgpack over ZeroMQ, one struct a message.

Server side ROUTER, replica side DEALER. Every replica message carries its ``incarnation``; the server
ignores those of an older one and ends their sender. A replica keeps at most ``CREDIT`` step reports
unacknowledged, then it waits: nothing is dropped unseen and nothing grows without bound.
"""

from msgspec import Struct

from infer_engine.core.observe import BlockMap, CoreRow
from infer_engine.counts import AtLeastOne, Count, Seconds, Share
from infer_engine.model.logprobs import TokenLogprobs
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import FinishReason, PreemptMode, TenantLimits, Tier
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ReplicaSettings

#: Step reports a replica may have in flight before it waits for an Ack.
CREDIT = 256


class LinkKeys(Struct, frozen=True, kw_only=True):
    """How one life of a replica proves itself on a link over TCP; keys as 64 hexadecimal digits. Travels
    through a pipe or an encrypted link, never in argv or an environment."""

    #: The server's public key, and the replica's own pair.
    server: str
    public: str
    secret: str
    #: Names the connection of this one life; nobody else knows it.
    ticket: str


class ReplicaConfig(Struct, frozen=True, kw_only=True):
    """First and only line on the replica's stdin, as JSON. The pipe then stays open: EOF means the parent
    died."""

    replica: str
    incarnation: int
    endpoint: str
    settings: ReplicaSettings
    #: Of an endpoint that is ``tcp://``.
    keys: LinkKeys | None = None


# --- server to replica -------------------------------------------------------------------------------------


class Submit(Struct, frozen=True, kw_only=True, tag="submit"):
    """``emitted`` are tokens already generated elsewhere: the sequence continues after them."""

    id: str
    prompt: list[int]
    max_tokens: int
    emitted: list[int] = []
    tenant: str = "default"
    tier: Tier = "interactive"
    priority: int = 0
    stop_token_ids: list[int] = []
    sampling: Sampling
    synthetic: bool = False
    #: Seconds the request had waited before it was sent here.
    waited_s: float = 0.0
    #: When it arrived, on the server's clock: keeps the order of those that arrived almost at once.
    arrived_s: float | None = None
    #: Seconds from when this was sent until the request must have ended; None for never.
    deadline_in_s: float | None = None
    #: A request that was submitted here before, of the same tenant and prompt: once that is computed, this
    #: one shares its blocks. Where that cannot be, it is a request like any other.
    fork_of: str | None = None


class Abort(Struct, frozen=True, kw_only=True, tag="abort"):
    """``reason`` stop: the gateway saw a stop string; cancelled: client gone or operator. Idempotent."""

    id: str
    reason: FinishReason = "cancelled"


class Release(Struct, frozen=True, kw_only=True, tag="release"):
    """Let go of these, running or waiting: they go on elsewhere. Answered by one Released, before the next
    step; what this replica says of them afterwards is of nobody."""

    ids: list[str]
    #: Of those that run by now, do not.
    only_waiting: bool = False


class PreemptOne(Struct, frozen=True, kw_only=True, tag="preempt"):
    """Preempt a running request in the next step. The step's report tells; nothing comes of one that does
    not run."""

    id: str


class SetAdmission(Struct, frozen=True, kw_only=True, tag="admission"):
    """Closing hands the whole queue back in one Withdrawn, order kept, before the next step."""

    open: bool


class SetLimits(Struct, frozen=True, kw_only=True, tag="limits"):
    """Applied whole between two steps, or refused whole. What is None stays; for units see ``core.Limits``.
    ``call`` pairs the LimitsSet answer."""

    call: int
    admit_limit: int | None = None
    batch_limit: int | None = None
    max_running: int | None = None
    token_budget: int | None = None
    max_waiting: int | None = None
    max_waiting_tokens: int | None = None
    max_passes: int | None = None
    age_steps: int | None = None
    long_prefill_tokens: int | None = None
    max_long_prefills: int | None = None
    #: Of all tenants that ``tenants`` does not name.
    tenant_default: TenantLimits | None = None
    #: By tenant: new limits, or None to go by the default again. Tenants that are not named keep theirs.
    tenants: dict[str, TenantLimits | None] | None = None


class SetShed(Struct, frozen=True, kw_only=True, tag="shed"):
    """Pause the batch tier: none of it is admitted, and what of it runs is preempted by the next step."""

    on: bool


class Observe(Struct, frozen=True, kw_only=True, tag="observe"):
    """How often and with what an Observation is sent; ``hz`` 0 still sends one a second, without blocks."""

    hz: float = 0.0
    blocks: bool = False


class Ack(Struct, frozen=True, tag="ack"):
    reports: int


class Stop(Struct, frozen=True, tag="stop"):
    pass


ToReplica = Submit | Abort | Release | PreemptOne | SetAdmission | SetLimits | SetShed | Observe | Ack | Stop


# --- replica to server -------------------------------------------------------------------------------------


class Started(Struct, frozen=True, kw_only=True, tag="started"):
    replica: str
    incarnation: Count
    #: None: it has no process of its own.
    pid: Count | None


class Loading(Struct, frozen=True, kw_only=True, tag="loading"):
    incarnation: Count
    #: 0..1; None where that is not known.
    progress: Share | None
    what: str
    #: Why it takes so long, where that is known.
    trouble: str | None = None


class Ready(Struct, frozen=True, kw_only=True, tag="ready"):
    incarnation: Count
    info: RunnerInfo
    admit_limit: Count
    batch_limit: Count
    max_running: AtLeastOne
    token_budget: AtLeastOne
    #: All of ``core.Limits`` that are numbers, by name.
    limits: dict[str, Count] = {}
    #: With work it may go without a step for so many seconds at least; None: as usual.
    stall_s: Seconds | None = None


class TokenOut(Struct, frozen=True, array_like=True, gc=False):
    id: str
    token: Count
    #: Position of the token in the request's output, so that none is repeated or lost unseen.
    index: Count
    #: Of requests that asked for them.
    logprobs: TokenLogprobs | None = None


class Admitted(Struct, frozen=True, array_like=True):
    id: str
    blocks: Count
    resumed: bool


class PreemptedOut(Struct, frozen=True, array_like=True):
    id: str
    mode: PreemptMode
    freed_blocks: Count
    redo_tokens: Count
    #: By a PreemptOne.
    asked: bool = False


class Prefilled(Struct, frozen=True, array_like=True):
    """So many tokens of the request's prompt (or of what it has to redo) were computed by this step."""

    id: str
    tokens: Count


class FinishedOut(Struct, frozen=True, array_like=True):
    id: str
    reason: FinishReason
    freed_blocks: Count
    generated_tokens: Count
    error: str | None = None
    #: Of an error: the reason that a server of others gave for it.
    said: str | None = None


class StepReport(Struct, frozen=True, kw_only=True, tag="step"):
    incarnation: Count
    step: Count
    duration_s: Seconds
    running: Count
    waiting: Count
    decode_tokens: Count
    prefill_tokens: Count
    kv_used: Count
    kv_free: Count
    kv_cached: Count
    invariant_violations: Count = 0
    tokens: list[TokenOut] = []
    admitted: list[Admitted] = []
    preempted: list[PreemptedOut] = []
    finished: list[FinishedOut] = []
    prefills: list[Prefilled] = []
    #: Cached blocks that this step reused for something else.
    evicted_blocks: Count = 0
    #: The hashes under which they were found: the router forgets them.
    evicted_hashes: list[bytes] = []
    #: Tokens that this step's first admissions looked up in the prefix cache, and how many were found.
    prefix_queries_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    #: Moved to host memory and back by this step.
    swapped_out_bytes: Count = 0
    swapped_in_bytes: Count = 0


class Observation(Struct, frozen=True, kw_only=True, tag="observation"):
    """One consistent moment between two steps. Rows: running in batch order, then the first of those that
    wait, in admission order."""

    incarnation: Count
    step: Count
    kv_used: Count
    kv_free: Count
    kv_cached: Count
    admit_limit: Count
    batch_limit: Count
    max_running: AtLeastOne
    token_budget: AtLeastOne
    admission_open: bool
    #: Seconds since the last step ended; None before the first.
    step_age_s: Seconds | None
    waiting_reasons: dict[str, Count]
    preemptions: Count
    invariant_violations: Count
    rows: list[CoreRow]
    blocks: BlockMap | None = None
    #: All that wait, those without a row included; None: they all have one.
    waiting: Count | None = None
    #: So many run at once: fewer than ``max_running`` where a server of others takes no more.
    slots: AtLeastOne | None = None
    #: All of ``core.Limits`` that are numbers, by name, and the tenants'.
    limits: dict[str, Count] = {}
    tenant_default: TenantLimits = TenantLimits()
    tenants: dict[str, TenantLimits] = {}
    #: Blocks of the pool in host memory.
    host_used: Count = 0
    host_total: Count = 0
    #: Since the replica started.
    preemptions_by_mode: dict[PreemptMode, Count] = {}
    swapped_out_bytes: Count = 0
    swapped_in_bytes: Count = 0


class Withdrawn(Struct, frozen=True, kw_only=True, tag="withdrawn"):
    """Waiting requests handed back when admission closed; the server places them elsewhere."""

    incarnation: Count
    ids: list[str]


class ReleasedOut(Struct, frozen=True, array_like=True):
    id: str
    freed_blocks: Count


class Released(Struct, frozen=True, kw_only=True, tag="released"):
    """The answer to a Release. Those ``asked`` for that are not ``released`` have ended here: a report says
    so, or has said so."""

    incarnation: Count
    asked: list[str]
    released: list[ReleasedOut]


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """A submitted request that this replica will never run (too long, queue full, admission closed)."""

    incarnation: Count
    id: str
    code: str
    message: str
    numbers: dict[str, float] = {}


class LimitsSet(Struct, frozen=True, kw_only=True, tag="limits-set"):
    incarnation: Count
    call: Count
    old: dict[str, Count] = {}
    new: dict[str, Count] = {}
    error: str | None = None


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    incarnation: Count
    error: str


FromReplica = (
    Started | Loading | Ready | StepReport | Observation | Withdrawn | Released | Refused | LimitsSet | Failed
)
