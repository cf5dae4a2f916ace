"""The contract between the engine server and whoever watches or operates it.

Plain msgspec structs, no I/O. Seconds are floats named ``*_s``; wall-clock moments are Unix seconds named
``*_at``; KV amounts are blocks unless the name says bytes. ``None`` is *unknown* (JSON ``null``), never zero.
Fields may be added, never renamed: an older console ignores what it does not know.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

PROTOCOL_VERSION = 1

ReplicaState = Literal[
    "starting", "ready", "draining", "drained", "fenced", "stopping", "failed", "restarting"
]
Health = Literal["ok", "idle", "stalled", "bad"]
RequestState = Literal["waiting", "running", "finished"]
Phase = Literal["prefill", "decode"]
BlockState = Literal["free", "cached", "used"]
Tier = Literal["interactive", "batch"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
PreemptMode = Literal["swap", "recompute"]
#: How to preempt: auto takes the cheaper way.
PreemptChoice = Literal["auto", "swap", "recompute"]
#: Why a request waits. ``behind`` names the request it waits behind in its own field.
WaitingReason = Literal[
    "kv",
    "headroom",
    "token_budget",
    "slots",
    "tier",
    "tenant",
    "long_prefill",
    "draining",
    "loading",
    "behind",
]
EventKind = Literal[
    "admit", "finish", "preempt", "cache_evict", "move", "reject", "replica", "operation", "traffic"
]
#: What happens to a request. ``received``: its whole body is there; ``queued``: a replica was sent it;
#: ``moved``: like routed, but it had been on another replica; ``resumed``: admitted again after a preemption;
#: ``held``: no replica has it; ``first_byte``: of the answer, given to the connection.
TimelineKind = Literal[
    "arrived",
    "received",
    "authenticated",
    "tokenized",
    "held",
    "routed",
    "moved",
    "queued",
    "admitted",
    "resumed",
    "prefill",
    "first_token",
    "first_byte",
    "preempted",
    "finished",
]
OperationPhase = Literal["pending", "running", "succeeded", "failed", "cancelled"]
DrainMode = Literal["migrate", "wait", "cancel"]
#: What a caller of the control API may do, in rising order; ``content`` reads generated text.
Role = Literal["viewer", "content", "operator", "admin"]


# --- what is: replicas, requests, blocks -------------------------------------------------------------------


class Percentiles(Struct, frozen=True):
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class TtftSplit(Struct, frozen=True, kw_only=True):
    """Where the seconds from a request's receipt to the first byte of its answer went. ``tokenize`` includes
    the wait for it, ``queue`` every wait for admission before the first token. The parts sum to ``total``,
    except in percentiles, where each is its own part's."""

    gateway: float | None = None
    tokenize: float | None = None
    queue: float | None = None
    prefill: float | None = None
    send: float | None = None
    total: float | None = None


class TtftSplits(Struct, frozen=True, kw_only=True):
    """Of users' streamed requests over the last minute. ``slowest`` is the mean of the slowest 1 % of
    ``requests``, which include those that still wait, with their present age."""

    p50: TtftSplit = TtftSplit()
    p95: TtftSplit = TtftSplit()
    slowest: TtftSplit | None = None
    slowest_requests: int = 0
    requests: int = 0


class QueueWait(Struct, frozen=True):
    """Seconds spent waiting for admission, over the last minute, those still waiting included."""

    p50: float | None = None
    p99: float | None = None
    oldest: float | None = None


class Kv(Struct, frozen=True):
    """One replica's block pool. ``free + cached + used == total``; the limits are marks, not states."""

    block_size: int | None = None
    total: int | None = None
    used: int | None = None
    cached: int | None = None
    free: int | None = None
    admit_limit: int | None = None
    batch_limit: int | None = None
    bytes_per_token: int | None = None
    #: Blocks in host memory for preempted sequences, and how many of them are in use.
    host_total: int | None = None
    host_used: int | None = None


class TenantUse(Struct, frozen=True, kw_only=True):
    """What one tenant uses now, or, in a row at the end, all those that have no row of their own:
    ``tenants`` is how many the row stands for, and its name is empty when these are several. ``tenant`` is
    untrusted text. Test traffic counts in what is used, and not in the rates."""

    tenant: str
    tenants: int = 1
    running: int = 0
    waiting: int = 0
    kv_blocks: int = 0
    #: Median over its live requests; None where it has none, and in the row of the others.
    prompt_tokens_p50: float | None = None
    #: Taken, and refused for whatever reason, within the last minute; None in a replica's rows.
    requests_per_min: int | None = None
    refused_per_min: int | None = None


class TierUse(Struct, frozen=True, kw_only=True):
    """What one tier uses of a replica."""

    running: int = 0
    waiting: int = 0
    kv_blocks: int = 0


class GpuHealth(Struct, frozen=True, kw_only=True):
    """What NVML told last of the GPU under a replica; None where this GPU or driver does not tell."""

    uuid: str
    temperature_c: int | None = None
    slowdown_c: int | None = None
    #: Uncorrectable memory errors since the driver was loaded, those of before this server included.
    uncorrectable_errors: int | None = None
    #: Why its clocks are held down, of the reasons that mean trouble.
    slowed_by: list[str] = []
    #: Critical Xids since this server first asked, the latest last, at most eight.
    xids: list[int] = []
    #: The driver cannot reach it any more.
    lost: bool = False


class StepMakeup(Struct, frozen=True):
    """What the last engine step was made of."""

    number: int
    decode_tokens: int
    prefill_tokens: int
    token_budget: int
    duration_s: float | None = None


class ReplicaSpec(Struct, frozen=True, kw_only=True):
    """What is wanted of a replica; it outlives its process and, where the server keeps its state, the
    server."""

    #: It takes no requests: drained, or to be so as soon as it is empty.
    cordoned: bool = False
    #: Why it is fenced; None where it is not.
    fenced: str | None = None
    #: Live limits that operators set, by name; the marks of its headroom among them.
    limits: dict[str, int] = {}


class FleetSpec(Struct, frozen=True, kw_only=True):
    """What is wanted of the fleet as a whole."""

    #: Replicas beside those that are fenced.
    replicas: int
    #: Batch is not admitted, and does not run.
    shed: bool = False


class Replica(Struct, frozen=True, kw_only=True):
    id: str
    state: ReplicaState
    health: Health | None = None
    step_age_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    queue_wait_s: QueueWait = QueueWait()
    kv: Kv = Kv()
    tokens_per_s: float | None = None
    ttft_s: Percentiles = Percentiles()
    itl_s: Percentiles = Percentiles()
    preemptions: int | None = None
    prefix_hit_ratio: float | None = None
    # beyond the first contract
    incarnation: int = 0
    pid: int | None = None
    max_running: int | None = None
    waiting_reasons: dict[str, int] = {}
    step: StepMakeup | None = None
    #: 0..1 while the weights load, else None.
    load_progress: float | None = None
    #: Preemptions in the last minute.
    preemptions_per_min: float | None = None
    #: Since the server's start; ``preemptions`` is their sum.
    preemptions_by_mode: dict[PreemptMode, int] = {}
    #: Its live limits by name; empty until it has loaded.
    limits: dict[str, int] = {}
    invariant_violations: int | None = None
    simulated: bool = False
    device: str | None = None
    dtype: str | None = None
    error: str | None = None
    #: Compute threads of its process.
    threads: int | None = None
    spec: ReplicaSpec | None = None
    #: Opaque; another one after every change of ``spec``.
    resource_version: str | None = None
    #: Which change of the server's specs this one's last was, and the last that it lives by.
    generation: int | None = None
    observed_generation: int | None = None
    #: How often it was ended because it had stalled.
    stalls: int | None = None
    #: What a decode step reads at least, beside the KV of its sequences, and how fast its device can at best
    #: by its data sheet: together the floor of a step. None where it is not known.
    weight_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    ttft_split_s: TtftSplits = TtftSplits()
    #: Tokens that first admissions looked up in the prefix cache since the server's start, and how many of
    #: them were found.
    prefix_queries_tokens: int | None = None
    prefix_hit_tokens: int | None = None
    #: Those with the most blocks here, the most first, at most three.
    tenants: list[TenantUse] = []
    #: The batch tier's part; None where nothing is told of it.
    batch: TierUse | None = None
    #: None where NVML was not asked or does not answer.
    gpu: GpuHealth | None = None
    #: Why its GPU is not to be trusted; None where it is.
    gpu_trouble: str | None = None


class RequestRow(Struct, frozen=True, kw_only=True):
    """One request as an operator sees it. Ids are made by the server: ``[a-z0-9-]{1,64}``."""

    id: str
    tenant: str
    tier: Tier
    replica: str | None
    state: RequestState
    phase: Phase | None = None
    prompt_tokens: int
    generated_tokens: int = 0
    kv_blocks: int = 0
    age_s: float
    queue_wait_s: float | None = None
    ttft_s: float | None = None
    waiting_reason: WaitingReason | None = None
    #: The id of the request this one waits behind.
    behind: str | None = None
    synthetic: bool = False
    # beyond the first contract
    max_tokens: int | None = None
    #: Tokens whose KV is in the pool; below ``prompt_tokens`` while the prompt prefills.
    computed_tokens: int = 0
    cached_tokens: int = 0
    #: Blocks that admission needs, for a waiting request.
    needs_blocks: int | None = None
    #: Free blocks that admission could give now under the request's mark, for a waiting request.
    admissible_blocks: int | None = None
    last_itl_s: float | None = None
    preemptions: int = 0
    #: How often it went on at another place: another replica, or its own in another life.
    moves: int = 0
    finish_reason: FinishReason | None = None
    #: The id the client sent (``X-Request-ID``): a label, untrusted text.
    client_id: str | None = None


class BlockRun(Struct, frozen=True, gc=False):
    """``count`` neighbouring blocks from ``first`` with equal state, owners and reference count."""

    first: int
    count: int
    state: BlockState
    owners: tuple[str, ...] = ()
    refs: int = 0
    #: Of cached ones, the quarter (1 to 4) of the order in which they are given away: 1 goes first.
    evict_quarter: int | UnsetType = UNSET


class Blocks(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    replica: str
    block_size: int
    total: int
    blocks: list[BlockRun]


class GatewayStatus(Struct, frozen=True):
    #: Where clients send requests, e.g. ``http://127.0.0.1:8000``.
    url: str | None = None
    connections: int | None = None
    #: The worst of the last seconds, and the spread below it.
    loop_lag_s: float | None = None
    loop_lag_p50_s: float | None = None
    loop_lag_p99_s: float | None = None
    #: Connections turned away since the start, and how many there may be.
    refused_connections: int | None = None
    max_connections: int | None = None
    #: Resident memory of the server's process, and about how much of it a connection costs: what it grew by
    #: since the server began to listen; None while there are too few to tell.
    rss_bytes: int | None = None
    connection_bytes: int | None = None
    #: Long prompts that wait for a tokenizer's thread now, and how many may.
    tokenizer_queue: int | None = None
    max_tokenizer_queue: int | None = None


class TrafficFigures(Struct, frozen=True, kw_only=True):
    """What requests of one kind met with over a minute at most; None where too few came to tell."""

    #: First tokens seen.
    requests: int = 0
    ttft_p95_s: float | None = None
    itl_p95_s: float | None = None
    queue_wait_p95_s: float | None = None
    #: Of the whole fleet, whoever's the blocks are.
    kv_used_ratio: float | None = None


class TrafficRails(Struct, frozen=True, kw_only=True):
    """Where test traffic waits, and where it ends. Users' requests alone count."""

    #: None is sent while a user has waited for longer, or so many test requests wait for each replica.
    hold_wait_s: float
    hold_test_waiting: int
    #: It ends when a user has waited for longer ...
    stop_wait_s: float
    #: ... when their TTFT p95 is over this, and so many times what it was ...
    quick_ttft_s: float
    stop_ttft_factor: float
    #: ... or when more of the KV is used while any is live.
    stop_kv_ratio: float
    max_rate_per_s: float
    max_duration_s: float


class TrafficStatus(Struct, frozen=True):
    """Injected test traffic."""

    running: bool = False
    profile: str | None = None
    tier: Tier | None = None
    rate_per_s: float | None = None
    started_at: float | None = None
    ends_at: float | None = None
    sent: int = 0
    in_flight: int = 0
    finished: int = 0
    failed: int = 0
    #: Arrivals that were skipped: too many in flight or waiting, or a real request waited.
    not_sent: int = 0
    #: Why it stopped by itself, if it did.
    stopped_because: str | None = None
    # beyond the first contract
    #: Requests that a closed loop keeps in flight; None where arrivals do not wait for answers.
    concurrency: int | None = None
    seed: int | None = None
    #: Requests of the recorded trace that is played; None where none is.
    trace_requests: int | None = None
    #: The most that may be in flight at once.
    most_in_flight: int | None = None
    #: Due, and held back for now by the guard rail: what waits, not what was skipped.
    held_back: bool = False
    #: What users met with in the minute before it began, and since (its last minute); and test requests.
    before: TrafficFigures | None = None
    users: TrafficFigures | None = None
    test: TrafficFigures | None = None
    #: How long the user has waited who waits longest; None when none does.
    user_wait_s: float | None = None
    #: A user's request is live.
    users_live: bool | None = None
    rails: TrafficRails | None = None


class Simulation(Struct, frozen=True, kw_only=True):
    """No model computes here: steps take as long as a roofline says, and all durations are simulated
    seconds."""

    #: Model and GPUs of one replica, such as ``llama-3.1-70b@4×h100``.
    deployment: str
    #: Simulated seconds per real second, as asked for.
    speed: float
    #: And as it was lately: lower when the machine cannot keep up. None before it is known.
    achieved_speed: float | None = None
    seed: int = 0
    #: Simulated seconds since the start.
    elapsed_s: float = 0.0


class ScalingStatus(Struct, frozen=True, kw_only=True):
    """How many replicas the demand calls for, and the signals that it is worked out of."""

    recommended: int
    because: str
    #: Replicas that admit now, and the bounds of what is recommended.
    ready: int
    least: int
    most: int
    queue_wait_p95_s: float | None = None
    queue_wait_target_s: float | None = None
    #: Blocks in use or waited for, as a share of what the ready replicas admit: over 1 when more wait.
    kv_pressure: float | None = None
    #: Growth of that demand, in replicas' worth of KV.
    kv_slope_per_min: float | None = None
    #: How long a replica takes from its start until it is ready; assumed until one was seen.
    boot_s: float | None = None
    boot_measured: bool = False


class RecorderStatus(Struct, frozen=True, kw_only=True):
    """The flight recorder: what span it covers and in which detail."""

    from_at: float | None = None
    until_at: float | None = None
    bytes: int = 0
    max_bytes: int
    hz: float
    #: roster, blocks, steps; beside status, totals and events.
    detail: list[str]


class Slo(Struct, frozen=True, kw_only=True):
    """What was promised to clients, as 99th percentiles; None where nothing was. Nothing is scheduled by it:
    figures are shown beside it."""

    ttft_p99_s: float | None = None
    itl_p99_s: float | None = None


class Attached(Struct, frozen=True, kw_only=True):
    """Somebody who watches. ``who`` is whom the server knows and, in parentheses, who that one claims to
    be: untrusted text."""

    who: str
    role: Role
    since_at: float


class LeaseHolder(Struct, frozen=True, kw_only=True):
    """Who holds the lease on the fleet. ``holder`` and ``purpose`` are untrusted text."""

    holder: str
    purpose: str = ""
    expires_at: float


class Fleet(Struct, frozen=True, kw_only=True):
    name: str
    model: str
    simulated: bool = False
    # beyond the first contract
    version: str | None = None
    context_length: int | None = None
    gateway: GatewayStatus = GatewayStatus()
    traffic: TrafficStatus = TrafficStatus()
    #: What is simulated and how fast; None where it is not.
    simulation: Simulation | None = None
    #: None before demand was first looked at.
    scaling: ScalingStatus | None = None
    #: What is wanted of it as a whole, as with a replica.
    spec: FleetSpec | None = None
    resource_version: str | None = None
    generation: int | None = None
    observed_generation: int | None = None
    #: Why specs do not outlive this server, or what of them was lost; None where all is well.
    specs_trouble: str | None = None
    #: None where nothing records.
    recorder: RecorderStatus | None = None
    #: None where nothing was promised.
    slo: Slo | None = None
    #: Who watches now, the first who came first; at most 16 of them, ``attached_more`` are not named.
    attached: list[Attached] = []
    attached_more: int = 0
    #: None while nobody holds it.
    lease: LeaseHolder | None = None


class Totals(Struct, frozen=True, kw_only=True):
    """The fleet in one line. KV is weighted by capacity; percentiles come from merged samples."""

    replicas: int
    ready: int
    running: int | None = None
    waiting: int | None = None
    kv_used_ratio: float | None = None
    tokens_per_s: float | None = None
    queue_wait_s: QueueWait = QueueWait()
    ttft_s: Percentiles = Percentiles()
    itl_s: Percentiles = Percentiles()
    preemptions: int | None = None
    waiting_reasons: dict[str, int] = {}
    finished: dict[str, int] = {}
    ttft_split_s: TtftSplits = TtftSplits()
    #: The sixteen with the most blocks, the most first, then one row for all others; made anew once a second.
    tenants: list[TenantUse] = []
    #: Of users since the server's start: requests that were taken, and the tokens of their prompts.
    taken_requests: int | None = None
    taken_prompt_tokens: int | None = None


class Alarm(Struct, frozen=True, kw_only=True):
    rule: str
    severity: Literal["critical", "warning"]
    replica: str | None = None
    since_s: float | None = None
    text: str
    action: str | None = None
    #: For how long it was seen at least, where its start is not known and ``since_s`` is None.
    at_least_s: float | None = None


class Status(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    fleet: Fleet
    replicas: list[Replica]
    totals: Totals
    alarms: list[Alarm] = []


class Requests(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    requests: list[RequestRow]
    #: By state, how many more there are, where a limit was asked for.
    omitted: dict[RequestState, int] = {}


#: The name that stands for all tenants without limits of their own.
EVERYONE = "*"


class TenantLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one tenant may use; None is no limit."""

    #: Requests taken per minute; more are refused at the door.
    requests_per_minute: int | None = None
    #: Tokens of the longest prompt that is taken.
    prompt_tokens: int | None = None
    #: Share (0 to 1) of each replica's KV pool, in blocks, up to which its requests are admitted.
    kv_share: float | None = None
    #: Long prompts that prefill at once on each replica.
    long_prefills: int | None = None
    #: The tier of all its requests, whatever they ask for.
    tier: Tier | None = None


class TenantStatus(Struct, frozen=True, kw_only=True):
    """What a tenant may use and what it uses now. ``name`` is untrusted text."""

    name: str
    limits: TenantLimits
    #: These limits are its own, not the default's.
    own: bool
    running: int
    waiting: int
    kv_blocks: int
    requests_last_minute: int
    #: Refused by its limits since the server's start.
    refused: int
    #: Opaque; another one after every change of its limits.
    resource_version: str | None = None


class Tenants(Struct, frozen=True, kw_only=True):
    """Tenants that have requests, had some lately, or have limits of their own."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    default: TenantLimits
    tenants: list[TenantStatus]


class LiveLimits(Struct, frozen=True, kw_only=True):
    """By replica, the limits that it lives by, by name; empty until it has loaded."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    replicas: dict[str, dict[str, int]]


# --- what happened: events and steps -----------------------------------------------------------------------


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
    #: Where a move went; ``replica`` is where it came from.
    to_replica: str | None = None
    operation: str | None = None
    actor: str | None = None
    #: Server-made text; user text never enters it.
    message: str | None = None
    synthetic: bool = False


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """``at_s`` is seconds since the timeline began. ``reason`` says why a replica was chosen (routed, moved),
    how it was preempted or ended, why it is held."""

    kind: TimelineKind
    at_s: float
    replica: str | None = None
    reason: str | None = None
    #: Of the prompt (tokenized), computed by this chunk (prefill), to redo (preempted), generated (finished).
    tokens: int | None = None
    #: Taken (admitted) or freed (preempted, finished).
    blocks: int | None = None
    #: Chunks before this one that have no entry.
    omitted: int = 0


class Timeline(Struct, frozen=True, kw_only=True):
    """What happened to one request. Entries are in order; a long life keeps its first and its latest ones:
    then ``omitted`` are missing after the first ``omitted_after``."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    request: str
    began_at: float
    entries: list[TimelineEntry]
    omitted: int = 0
    omitted_after: int | None = None
    ttft_split_s: TtftSplit


class History(Struct, frozen=True, kw_only=True):
    """Series of the past at a fixed step, oldest first, the last one ending at ``until_at``; null where
    nothing was known. Gauges and rates are means over a step, latencies its highest. Keys: kv, running,
    waiting, tokens_per_s, ttft_p95, ttft_p99, itl_p95, itl_p99, queue_wait_p99."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    until_at: float
    step_s: float
    #: How often it was looked; a step is a multiple of it.
    sample_s: float
    fleet: dict[str, list[float | None]]
    replicas: dict[str, dict[str, list[float | None]]] = {}


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


# --- what operators ask: commands, effects, operations -----------------------------------------------------


class Drain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: DrainMode | None = None
    deadline_s: float | None = 300.0
    on_deadline: Literal["cancel", "wait"] = "wait"
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Undrain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Fence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replica is broken, now: its requests go elsewhere without its help, its process is killed, and none
    is started in its place before ``Release``."""

    #: Its output is not to be trusted: requests for which it has made tokens end with an error, and nothing
    #: goes on from those. Those for which it has made none start over in any case.
    suspect: bool = False
    #: Even the last ready replica.
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a fenced replica again."""

    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Restart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drain a replica, end its process and start another. What it still has at the deadline goes on as after
    a crash."""

    mode: DrainMode | None = None
    deadline_s: float = 60.0
    #: Even the last ready replica.
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Scale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many replicas there are to be, the fenced ones not counted. Those too many are drained and ended,
    one after another: the ``victims`` first, then those that serve the least."""

    replicas: int
    victims: list[str] = []
    #: How long each victim may drain; then what it still has goes on as after a crash.
    deadline_s: float = 300.0
    #: Even below one ready replica.
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Shed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause the batch tier on all replicas, or let it go on. What of it runs is preempted and stays
    queued."""

    on: bool
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class SetHeadroom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Move a mark. ``headroom = total - limit``; exactly one of ``percent`` and ``blocks`` is given, both are
    *headroom* (what stays free of new admissions), not the limit. ``tier`` batch moves ``batch_limit``."""

    replica: str | None = None
    percent: float | None = None
    blocks: int | None = None
    tier: Tier = "interactive"
    revert_after_s: float | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class CancelWhere(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cancel every live request that ``where`` selects, such as ``tenant=acme and age_s>60``. ``expect`` is
    how many the caller thinks these are; a dry run needs none, and lists them."""

    where: str
    expect: int | None = None
    #: More than so many are not cancelled at once.
    max: int = 100
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class Preempt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take the blocks of a running request; it keeps its tokens and goes on later, at the head of its tier,
    or (``to``) on another replica."""

    to: str | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class TraceRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request of a recorded trace. Its prompt is made up, of exactly so many tokens; its answer has
    exactly ``output_tokens``."""

    #: Seconds from the trace's beginning; they never fall.
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    tier: Tier = "interactive"


class Inject(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Test traffic: an open loop at ``rate_per_s`` (1 where nothing is given), a closed loop that keeps
    ``concurrency`` requests in flight, or the arrivals of ``trace``: one of the three."""

    profile: str = "chat"
    rate_per_s: float | None = None
    #: Where nothing is given 60, or as long as the trace.
    duration_s: float | None = None
    #: Of all requests; None leaves it to the profile.
    tier: Tier | None = None
    seed: int = 0
    concurrency: int | None = None
    #: With the profile ``trace``.
    trace: list[TraceRequest] | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class StopInjection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class ChangeLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change live limits of a replica, or of all, by name: all that are given or none, between two steps."""

    limits: dict[str, int]
    replica: str | None = None
    revert_after_s: float | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class ChangeTenant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change what a tenant (of the path; ``*`` is all that have no limits of their own) may use. ``limits``
    holds fields of TenantLimits; null lifts one, those not given stay. ``forget`` drops all of them."""

    limits: dict[str, Any] = {}
    forget: bool = False
    revert_after_s: float | None = None
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


#: Everything that can be asked.
Command = (
    Drain
    | Undrain
    | Fence
    | Release
    | Restart
    | Scale
    | Shed
    | SetHeadroom
    | Cancel
    | CancelWhere
    | Preempt
    | Inject
    | StopInjection
    | ChangeLimits
    | ChangeTenant
)


class Effect(Struct, frozen=True, kw_only=True):
    """What a command will do, predicted from live state (a dry run) or just before it was applied."""

    summary: list[str]
    numbers: dict[str, float | None] = {}
    warnings: list[str] = []


class Operation(Struct, frozen=True, kw_only=True):
    """A command under way. It outlives the client that asked for it."""

    id: str
    kind: str
    target: str
    phase: OperationPhase
    actor: str = ""
    reason: str = ""
    started_at: float
    ended_at: float | None = None
    deadline_at: float | None = None
    done: int | None = None
    total: int | None = None
    blocked_by: list[str] = []
    message: str = ""
    params: dict[str, Any] = {}


class CommandResult(Struct, frozen=True, kw_only=True):
    #: None for a dry run.
    operation: Operation | None
    effect: Effect
    #: Of the spec that the command changes: as it is now in a dry run (what to send as ``If-Match`` with the
    #: command itself), as it became otherwise. None where none is changed.
    resource_version: str | None = None
    #: What the server could not do beside it, such as writing down that it was done.
    warnings: list[str] = []


class AcquireLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take the lease on the fleet, for changes to all of it that take several steps."""

    #: What for, as others are told who find it taken.
    purpose: str = ""
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class RenewLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


class ReleaseLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    reason: str = ""
    actor: str = ""


LeaseCommand = AcquireLease | RenewLease | ReleaseLease


class Lease(Struct, frozen=True, kw_only=True):
    """Its holder sends ``token`` as ``Lease-Token`` with every command. ``holder`` and ``purpose`` are
    untrusted text."""

    id: str
    #: Higher than that of every lease before it.
    token: int
    holder: str
    purpose: str = ""
    expires_at: float


class Leases(Struct, frozen=True, kw_only=True):
    """The leases that are held. Without their ids and tokens, which are their holders'."""

    version: int = PROTOCOL_VERSION
    leases: list[Lease]


class AuditPage(Struct, frozen=True, kw_only=True):
    """Records of the audit, the oldest first, each as it was written: its ``sha256`` can be computed
    again."""

    version: int = PROTOCOL_VERSION
    records: list[dict[str, Any]]
    #: Why records cannot be written now; None when they can.
    trouble: str | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """RFC 9457 problem document with a stable ``code``."""

    status: int
    code: str
    title: str
    detail: str = ""
    field: str | None = None
    numbers: dict[str, float | None] = {}
    #: With ``stale_version``: the thing as it is now, and its version.
    current: dict[str, Any] | None = None
    resource_version: str | None = None


# --- the watch stream --------------------------------------------------------------------------------------


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


# --- the token tap (a separate, permissioned stream) -------------------------------------------------------


class TokenDelta(Struct, frozen=True, kw_only=True):
    """Generated text of one request. ``index`` is the position of its first token; text is untrusted."""

    request: str
    index: int
    text: str
    at: float
    tokens: int = 1
    finish_reason: FinishReason | None = None
    #: Seconds since the token before it, None for the first.
    itl_s: float | None = None
    #: The same for each of the tokens, and how many characters of ``text`` each has (none where its bytes
    #: wait for the next one's; empty where no text is told).
    gaps_s: list[float | None] = []
    characters: list[int] = []


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


class Operations(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    operations: list[Operation]


class Events(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    events: list[Event] = field(default_factory=list)
