"""One replica as it is: its state, its KV pool, its device, what is wanted of it."""

from msgspec import Struct

from infer_engine.protocol.figures import Percentiles, QueueWait, TtftSplits
from infer_engine.protocol.words import PROTOCOL_VERSION, Health, PreemptMode, ReplicaState


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
    #: What several requests share counts once: divided evenly among all of a replica.
    kv_blocks: int = 0
    #: Median over its live requests; None where it has none, and in the row of the others.
    prompt_tokens_p50: float | None = None
    #: Taken, and refused for whatever reason, within the last minute; None in a replica's rows, and of who
    #: sends test traffic alone.
    requests_per_min: int | None = None
    refused_per_min: int | None = None
    #: Since when (Unix seconds) it holds more blocks than all others together, and a quarter of all pools;
    #: None where it does not, and in a replica's rows.
    crowds_since: float | None = None


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
    #: Of a watched server's GPUs, where NVIDIA's exporter is watched too: of all of them together, and of
    #: their utilisation (0..1) the mean.
    power_w: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilisation: float | None = None


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
    incarnation: int = 0
    pid: int | None = None
    #: Most that run at once: the limit, or fewer where a server of others has shown that it takes no more.
    max_running: int | None = None
    waiting_reasons: dict[str, int] = {}
    step: StepMakeup | None = None
    #: 0..1 while the weights load, else None.
    load_progress: float | None = None
    #: Preemptions in the last minute.
    preemptions_per_min: float | None = None
    #: Those of the batch tier, which gives way to interactive; None where tiers are not told.
    batch_preemptions_per_min: float | None = None
    #: Since the server's start; ``preemptions`` is their sum.
    preemptions_by_mode: dict[PreemptMode, int] = {}
    #: Its live limits by name; empty until it has loaded.
    limits: dict[str, int] = {}
    invariant_violations: int | None = None
    simulated: bool = False
    device: str | None = None
    dtype: str | None = None
    error: str | None = None
    #: For how long it has not been there, which is since it was last ready or, where it never was, since it
    #: is to be; None while it is there, and where that is not told.
    unready_s: float | None = None
    #: Whether it was ready before, in this or a former life; None where that is not told.
    was_ready: bool | None = None
    #: Compute threads of its process.
    threads: int | None = None
    spec: ReplicaSpec | None = None
    #: Opaque; another one after every change of ``spec``.
    resource_version: str | None = None
    #: Of the limits in ``spec`` those that were set in an earlier run of this server and came back with its
    #: state: when, in Unix seconds.
    kept_limits: dict[str, float] = {}
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
    #: The product, where it is not ours but a server that is only watched, such as vLLM.
    foreign: str | None = None
    #: Where it is only watched: that server's URL as ``serve --upstream`` takes it.
    watched_url: str | None = None
    #: How it came to be there: ``local``, ``inproc``, ``ray``, ``joined`` by itself, ``upstream``;
    #: None where not known.
    launcher: str | None = None
    #: The machine it runs on, by its own word, where that is another one.
    host: str | None = None
    #: The product, where it is such a server that our gateway sends requests to: its queue, its requests and
    #: their times are known, its blocks and steps are not.
    upstream: str | None = None


class LiveLimits(Struct, frozen=True, kw_only=True):
    """By replica, the limits that it lives by, by name; empty until it has loaded."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    replicas: dict[str, dict[str, int]]
