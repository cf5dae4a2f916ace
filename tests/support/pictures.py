"""Pictures for tests and screenshots, built below the Picture seam: one incident, a quiet fleet, a start-up.

The incident: tenant *acme* floods long prompts, r2 and r5 queue on KV memory, r3 drains, r7 boots.
"""

from infer_console.state.picture import (
    Link,
    Picture,
    ReplicaPicture,
    StreamPicture,
)
from infer_engine.protocol import (
    Alarm,
    Event,
    Fleet,
    GatewayStatus,
    GpuHealth,
    Kv,
    Operation,
    Percentiles,
    QueueWait,
    RequestRow,
    Slo,
    TenantUse,
    Totals,
    TrafficStatus,
    TtftSplit,
    TtftSplits,
)
from support.picture_parts import CAPABILITIES, NOW, TOTAL, block_map, kv, replica, rising, running, waiting

ROSTER: tuple[RequestRow, ...] = (
    running(
        "7f3a91",
        "acme",
        100_112,
        0,
        512,
        6_257,
        48,
        phase="prefill",
        computed_tokens=61_000,
        ttft_s=None,
        last_itl_s=None,
    ),
    running("7e0c44", "acme", 99_840, 118, 512, 6_248, 53, ttft_s=41.2),
    running("7e0b12", "acme", 101_376, 402, 512, 6_362, 78, ttft_s=38.8),
    running("7e0b90", "acme", 98_390, 290, 512, 6_168, 61, ttft_s=33.0),
    running("7ef001", "umbrella", 4_480, 446, 600, 308, 49, ttft_s=6.1, cached_tokens=512),
    running("7ef860", "initech", 3_204, 640, 2_000, 241, 72, ttft_s=8.4, cached_tokens=1_024),
    running("7efb20", "globex", 8_450, 553, 800, 563, 58, ttft_s=4.9, cached_tokens=6_144),
    running("7f1a77", "globex", 7_912, 590, 1_024, 532, 62, ttft_s=5.3, cached_tokens=6_144),
    running("7f1d03", "soylent", 13_840, 600, 900, 903, 80, ttft_s=11.7, preemptions=1),
)
QUEUE: tuple[RequestRow, ...] = (
    waiting("7f3b02", "acme", 100_008, 6_283, 47, "kv"),
    waiting("7f3b09", "acme", 99_120, 6_220, 44, "kv"),
    waiting("7f3c40", "globex", 1_240, 110, 31, "behind", behind="7f3b02"),
    waiting("7f3c5e", "initech", 980, 94, 29, "behind", behind="7f3b02"),
    waiting(
        "7ef952", "eval", 12_288, 1_025, 190, "tier", tier="batch", preemptions=1, generated_tokens=1_877
    ),
    *(waiting(f"7f3d{index:02x}", "acme", 99_000 + index, 6_250, 28 - index, "kv") for index in range(13)),
    *(
        waiting(f"7f3e{index:02x}", "initech", 900 + index, 90, 12 - index, "behind", behind="7f3b02")
        for index in range(5)
    ),
)


def incident_replicas() -> dict[str, ReplicaPicture]:
    rows = {row.id: row for row in (*ROSTER, *QUEUE)}
    small = {"itl": (0.031, 0.044), "ttft": (0.4, 1.6), "health": "ok"}
    statuses = [
        replica(
            "r2",
            9,
            23,
            kv(27_198, 1_104),
            oldest=47,
            qw99=29.7,
            tokens_per_s=83,
            ttft=(21.4, 48.0),
            itl=(0.096, 0.212),
            preemptions_per_min=1,
            step_ms=96,
            waiting_reasons={"kv": 15, "behind": 7, "tier": 1},
            weight_bytes=140_000_000_000,
            bandwidth_bytes_per_s=4 * 3.35e12,
            gpu=GpuHealth(uuid="GPU-07", temperature_c=71, slowdown_c=90, uncorrectable_errors=0),
        ),
        replica(
            "r5",
            11,
            19,
            kv(29_900, 500),
            oldest=41,
            qw99=25.9,
            tokens_per_s=99,
            ttft=(17.8, 44.1),
            itl=(0.101, 0.240),
            preemptions_per_min=4,
            step_ms=101,
        ),
        replica(
            "r3",
            6,
            0,
            kv(4_577, 12_000),
            state="draining",
            health="bad",
            tokens_per_s=231,
            itl=(0.026, 0.039),
            step_ms=26,
        ),
        replica(
            "r4",
            44,
            2,
            kv(25_634, 1_500),
            oldest=1.2,
            qw99=1.1,
            tokens_per_s=1303,
            ttft=(0.6, 2.9),
            itl=(0.033, 0.049),
            step_ms=33,
        ),
        replica("r0", 41, 0, kv(21_667, 4_000), qw99=0.1, tokens_per_s=1290, step_ms=31, **small),  # pyright: ignore[reportArgumentType]
        replica("r1", 39, 0, kv(20_751, 3_000), qw99=0.04, tokens_per_s=1267, step_ms=30, **small),  # pyright: ignore[reportArgumentType]
        replica("r6", 36, 0, kv(19_225, 4_400), qw99=0.02, tokens_per_s=1207, step_ms=29, **small),  # pyright: ignore[reportArgumentType]
        replica(
            "r7",
            None,
            None,
            Kv(),
            state="starting",
            health=None,
            load_progress=0.61,
            preemptions_per_min=None,
        ),
    ]
    made = {status.id: ReplicaPicture(status, at=NOW) for status in statuses}
    made["r2"] = ReplicaPicture(
        statuses[0],
        rows,
        tuple(rows),
        block_map(ROSTER, TOTAL, 1_104),
        step=88_214,
        at=NOW,
        history={
            "running": rising(24, 9),
            "kv": rising(0.66, 0.89),
            "waiting": rising(0, 23),
            "tokens_per_s": rising(760, 83),
            "ttft_p99": rising(1.5, 48.0),
            "itl_p99": rising(0.044, 0.212),
        },
    )
    return made


EVENTS: tuple[Event, ...] = (
    Event(
        seq=1,
        at=NOW - 53,
        kind="admit",
        replica="r2",
        request="7efb20",
        tenant="globex",
        blocks=529,
        wait_s=0.9,
    ),
    Event(
        seq=2,
        at=NOW - 40,
        kind="preempt",
        replica="r2",
        request="7f1d03",
        tenant="soylent",
        reason="recompute",
        tokens=14_100,
    ),
    Event(
        seq=3,
        at=NOW - 16,
        kind="operation",
        replica="r3",
        operation="op-118",
        actor="kim",
        reason="running",
        message="drain r3: wait",
    ),
    Event(
        seq=4,
        at=NOW - 12.1,
        kind="finish",
        replica="r2",
        request="7df2e1",
        tenant="acme",
        reason="stop",
        tokens=412,
        blocks=6_204,
    ),
    Event(
        seq=5,
        at=NOW - 12,
        kind="cache_evict",
        replica="r2",
        blocks=5_120,
        message="least recently used prefixes",
    ),
    Event(
        seq=6,
        at=NOW - 11.6,
        kind="admit",
        replica="r2",
        request="7f3a91",
        tenant="acme",
        blocks=6_257,
        wait_s=36,
    ),
    Event(
        seq=7,
        at=NOW - 9,
        kind="reject",
        request="7f3f00",
        tenant="acme",
        reason="prompt_too_long",
        message="131,072 tokens over the context of 128,000",
    ),
    Event(
        seq=8,
        at=NOW - 4,
        kind="move",
        replica="r3",
        to_replica="r6",
        request="7f2a9e",
        tenant="globex",
        tokens=211,
        message="stream unbroken",
    ),
    Event(
        seq=9,
        at=NOW - 2,
        kind="preempt",
        replica="r5",
        request="7f31d0",
        tenant="initech",
        reason="recompute",
        tokens=6_200,
        blocks=388,
    ),
    Event(
        seq=10,
        at=NOW - 1,
        kind="finish",
        replica="r4",
        request="7f2c10",
        tenant="globex",
        reason="stop",
        tokens=412,
        blocks=533,
    ),
    Event(
        seq=11,
        at=NOW - 1,
        kind="admit",
        replica="r4",
        request="7f3c88",
        tenant="initech",
        blocks=132,
        wait_s=0.9,
    ),
)


TENANTS: tuple[TenantUse, ...] = (
    TenantUse(
        tenant="acme",
        running=8,
        waiting=27,
        kv_blocks=72_000,
        prompt_tokens_p50=99_840,
        requests_per_min=38,
        refused_per_min=0,
        crowds_since=NOW - 440,
    ),
    TenantUse(
        tenant="globex",
        running=71,
        waiting=6,
        kv_blocks=31_000,
        prompt_tokens_p50=7_900,
        requests_per_min=402,
        refused_per_min=0,
    ),
    TenantUse(
        tenant="initech",
        running=52,
        waiting=4,
        kv_blocks=22_000,
        prompt_tokens_p50=3_200,
        requests_per_min=511,
        refused_per_min=2,
    ),
    TenantUse(
        tenant="",
        tenants=9,
        running=55,
        waiting=7,
        kv_blocks=16_000,
        requests_per_min=348,
        refused_per_min=0,
    ),
)


def incident(**changes: object) -> Picture:
    """Eight replicas at 03:11; ``changes`` replace fields of the picture."""
    fields: dict[str, object] = {
        "at": NOW,
        "link": Link("unix:///run/infer-console/eu-west.sock", "live", age_s=0.2, bytes_per_s=3_100),
        "server_version": "0.1.0",
        "capabilities": CAPABILITIES,
        "fleet": Fleet(
            name="eu-west/chat-70b",
            model="llama-70b-fp16",
            context_length=128_000,
            gateway=GatewayStatus(
                "http://10.0.4.7:8000",
                231,
                0.004,
                loop_lag_p99_s=0.004,
                max_connections=2_000,
                tokenizer_queue=3,
            ),
            slo=Slo(ttft_p99_s=2.0, itl_p99_s=0.08),
        ),
        "totals": Totals(
            replicas=8,
            ready=6,
            running=186,
            waiting=44,
            kv_used_ratio=0.79,
            tokens_per_s=5_480,
            queue_wait_s=QueueWait(p50=1.1, p99=29.7, oldest=47),
            ttft_s=Percentiles(p50=0.5, p99=48.0),
            itl_s=Percentiles(p50=0.033, p99=0.240),
            preemptions=212,
            waiting_reasons={"kv": 27, "behind": 12, "headroom": 2, "token_budget": 2, "tier": 1},
            finished={"stop": 81_204, "length": 4_410, "cancelled": 212, "error": 3},
            ttft_split_s=TtftSplits(
                slowest=TtftSplit(
                    gateway=0.01, tokenize=0.3, queue=29.7, prefill=17.9, send=0.1, total=48.01
                ),
                slowest_requests=2,
                requests=186,
            ),
            tenants=list(TENANTS),
        ),
        "replicas": incident_replicas(),
        "events": EVENTS,
        "operations": (
            Operation(
                id="op-119",
                kind="scale",
                target="8",
                phase="succeeded",
                started_at=NOW - 300,
                ended_at=NOW - 8,
            ),
            Operation(
                id="op-118",
                kind="drain",
                target="r3",
                phase="running",
                actor="kim",
                started_at=NOW - 82,
                deadline_at=NOW + 218,
                done=31,
                total=37,
                blocked_by=["7f2a9e", "7f2b00", "7f2b01", "7f2b07", "7f2c00", "7f2d11"],
                params={"mode": "wait"},
            ),
        ),
        "alarms": (
            Alarm(
                rule="kv_queueing",
                severity="critical",
                replica="r2",
                since_s=376,
                text="r2: 23 wait on KV blocks, oldest 47 s",
                action="H headroom",
            ),
            Alarm(
                rule="gpu_bad",
                severity="critical",
                replica="r3",
                since_s=95,
                text="r3 draining: health is bad: uncorrectable memory errors",
                action="D drain",
            ),
            Alarm(
                rule="preempting",
                severity="warning",
                replica="r5",
                since_s=130,
                text="r5: preempting 4 a minute, KV at 98 %",
            ),
        ),
        "history": {
            "ttft_p99": rising(1.5, 48.0),
            "waiting": rising(0, 44),
            "kv": rising(0.66, 0.79),
            "tokens_per_s": rising(6_100, 5_480),
            "itl_p99": rising(0.044, 0.240),
            "running": rising(190, 186),
        },
    } | changes
    return Picture(**fields)  # pyright: ignore[reportArgumentType]


def small_replicas(total: int = 512) -> dict[str, ReplicaPicture]:
    """Two replicas of a laptop's engine with test traffic on them."""
    made: dict[str, ReplicaPicture] = {}
    for number in range(2):
        id = f"r{number}"
        rows = [
            running(
                f"req-{number}{index}",
                "synthetic" if index else "alice",
                40 + 31 * index,
                12 * index,
                128,
                3 + 3 * index,
                4.2 + index,
                replica=id,
                synthetic=bool(index),
                ttft_s=0.3,
                last_itl_s=0.041,
                queue_wait_s=0.0,
            )
            for index in range(4 + number)
        ]
        used = sum(row.kv_blocks for row in rows)
        status = replica(
            id,
            len(rows),
            0,
            kv(used, 0, total),
            tokens_per_s=24.3,
            ttft=(0.3, 0.8),
            itl=(0.041, 0.066),
            qw99=0.01,
            step_ms=41,
        )
        ids = {row.id: row for row in rows}
        made[id] = ReplicaPicture(
            status, ids, tuple(ids), block_map(rows, total, 0, shared=0), step=812, at=NOW
        )
    return made


def small(**changes: object) -> Picture:
    """An embedded engine with two replicas and injected chat traffic."""
    fields: dict[str, object] = {
        "embedded": True,
        "fleet": Fleet(
            name="local",
            model="smollm2-135m-instruct",
            gateway=GatewayStatus("http://127.0.0.1:8000", 9, 0.001),
            traffic=TrafficStatus(True, "chat", "interactive", 1.0, NOW - 22, NOW + 38, 21, 9, 12),
        ),
        "totals": Totals(
            replicas=2,
            ready=2,
            running=9,
            waiting=0,
            kv_used_ratio=0.19,
            tokens_per_s=48.6,
            queue_wait_s=QueueWait(p99=0.01),
            ttft_s=Percentiles(p50=0.3, p99=0.8),
            itl_s=Percentiles(p50=0.041, p99=0.066),
            preemptions=0,
            finished={"stop": 9, "length": 3},
        ),
        "replicas": small_replicas(),
        "operations": (),
        "alarms": (),
        "streams": {
            "req-01": StreamPicture(
                "req-01", "The capital of France is Paris.\n\nIt stands on the Seine, and", 18, 0, 0.041
            ),
            "req-02": StreamPicture(
                "req-02", "1. Wash the rice until the water runs clear.\n2. Add", 14, 0, 0.043
            ),
            "req-11": StreamPicture("req-11", "Café, naïve — 東京の天気は晴れです。", 12, 0, 0.040),
        },
        "history": {
            "ttft_p99": rising(0.3, 0.8, 200, 100),
            "kv": rising(0.0, 0.19, 200, 150),
            "waiting": rising(0, 0, 200),
            "tokens_per_s": rising(0, 48.6, 200, 150),
        },
    } | changes
    return incident(**fields)


def quiet(**changes: object) -> Picture:
    """The same engine before the first request."""
    pool = kv(0, 0, 512)
    replicas = {
        id: ReplicaPicture(
            replica(id, 0, 0, pool, health="idle", tokens_per_s=0, preemptions_per_min=0),
            blocks=block_map((), 512, 0),
            at=NOW,
        )
        for id in ("r0", "r1")
    }
    fields: dict[str, object] = {
        "fleet": Fleet(
            name="local",
            model="smollm2-135m-instruct",
            gateway=GatewayStatus("http://127.0.0.1:8000", 0, 0.001),
        ),
        "totals": Totals(
            replicas=2, ready=2, running=0, waiting=0, kv_used_ratio=0.0, tokens_per_s=0.0, preemptions=0
        ),
        "replicas": replicas,
        "events": (),
        "streams": {},
        "history": {},
    } | changes
    return small(**fields)


def starting(message: str = "loading smollm2-135m-instruct") -> Picture:
    """Before the first byte from the engine."""
    return Picture(NOW, Link("unix:///tmp/infer/control.sock", "starting", message=message), embedded=True)
