"""The fleet as a whole."""

from typing import Literal

from msgspec import Struct

from infer_engine.protocol.figures import Percentiles, QueueWait, TtftSplits
from infer_engine.protocol.replica import Replica, TenantUse
from infer_engine.protocol.traffic import GatewayStatus, TrafficStatus
from infer_engine.protocol.words import PROTOCOL_VERSION, Role


class FleetSpec(Struct, frozen=True, kw_only=True):
    """What is wanted of the fleet as a whole."""

    #: Replicas beside those that are fenced.
    replicas: int
    #: Batch is not admitted, and does not run.
    shed: bool = False


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
    #: A notice is of what is as it should be, and is told because it shows in the figures.
    severity: Literal["critical", "warning", "notice"]
    replica: str | None = None
    since_s: float | None = None
    text: str
    action: str | None = None
    #: For how long it was seen at least, where its start is not known and ``since_s`` is None.
    at_least_s: float | None = None
    #: The rule of the doctor's finding that ``text`` gives as its cause; None where it measured alone.
    cause: str | None = None


class Status(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    fleet: Fleet
    replicas: list[Replica]
    totals: Totals
    alarms: list[Alarm] = []
