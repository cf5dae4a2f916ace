"""What the gateway carries, and the test traffic."""

from msgspec import Struct

from infer_engine.protocol.words import Tier


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
