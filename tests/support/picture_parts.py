"""Parts of which pictures are made for tests: pools, replicas, requests, block maps, curves."""

from array import array
from collections.abc import Sequence

from infer_console.state.picture import CACHED, FREE, NO_OWNER, USED, BlockMap, Series
from infer_engine.protocol import Kv, Percentiles, QueueWait, Replica, RequestRow, StepMakeup

#: 2026-03-08 03:11:26 UTC
NOW = 1772939486.0
CAPABILITIES = frozenset(
    {
        "drain",
        "undrain",
        "headroom",
        "cancel",
        "inject",
        "tokens",
        "watch",
        "cancel_where",
        "preempt",
        "fence",
        "release",
        "restart",
        "tenants",
        "shed",
        "scale",
    }
)
TOTAL = 30_517


def kv(used: int, cached: int, total: int = TOTAL) -> Kv:
    return Kv(
        block_size=16,
        total=total,
        used=used,
        cached=cached,
        free=total - used - cached,
        admit_limit=total * 9 // 10,
        batch_limit=total * 65 // 100,
        bytes_per_token=327_680,
    )


def replica(
    id: str,
    running: int | None,
    waiting: int | None,
    pool: Kv,
    *,
    state: str = "ready",
    health: str | None = "ok",
    oldest: float | None = None,
    qw99: float | None = None,
    tokens_per_s: float | None = None,
    ttft: tuple[float | None, float | None] = (None, None),
    itl: tuple[float | None, float | None] = (None, None),
    preemptions_per_min: float | None = 0,
    step_ms: float | None = None,
    **more: object,
) -> Replica:
    return Replica(
        id=id,
        state=state,  # pyright: ignore[reportArgumentType]
        health=health,  # pyright: ignore[reportArgumentType]
        running=running,
        waiting=waiting,
        queue_wait_s=QueueWait(p99=qw99, oldest=oldest),
        kv=pool,
        tokens_per_s=tokens_per_s,
        ttft_s=Percentiles(p50=ttft[0], p99=ttft[1]),
        itl_s=Percentiles(p50=itl[0], p99=itl[1]),
        preemptions_per_min=preemptions_per_min,
        max_running=64,
        device="cuda:0",
        dtype="fp16",
        pid=4711,
        step=None if step_ms is None else StepMakeup(88_214, 8, 504, 512, step_ms / 1000),
        **more,  # pyright: ignore[reportArgumentType]
    )


def running(
    id: str, tenant: str, prompt: int, generated: int, most: int, blocks: int, age: float, **more: object
) -> RequestRow:
    values: dict[str, object] = {
        "id": id,
        "tenant": tenant,
        "tier": "interactive",
        "replica": "r2",
        "state": "running",
        "phase": "decode",
        "prompt_tokens": prompt,
        "generated_tokens": generated,
        "kv_blocks": blocks,
        "age_s": age,
        "queue_wait_s": age / 2,
        "ttft_s": age / 1.5,
        "last_itl_s": 0.097,
        "max_tokens": most,
        "computed_tokens": prompt + generated,
    } | more
    return RequestRow(**values)  # pyright: ignore[reportArgumentType]


def waiting(
    id: str, tenant: str, prompt: int, blocks: int, age: float, reason: str, **more: object
) -> RequestRow:
    values: dict[str, object] = {
        "id": id,
        "tenant": tenant,
        "tier": "interactive",
        "replica": "r2",
        "state": "waiting",
        "prompt_tokens": prompt,
        "age_s": age,
        "queue_wait_s": age,
        "waiting_reason": reason,
        "needs_blocks": blocks,
        "admissible_blocks": 267,
        "max_tokens": 512,
    } | more
    return RequestRow(**values)  # pyright: ignore[reportArgumentType]


def block_map(
    rows: Sequence[RequestRow], total: int, cached: int, shared: int = 384, block_size: int = 16
) -> BlockMap:
    """Blocks of the rows one after the other, ``shared`` ones first, then cached, then free ones."""
    owners = tuple(row.id for row in rows)
    kinds, owner, refs = bytearray(), array("H"), array("H")
    for index, row in enumerate(rows):
        count = row.kv_blocks
        kinds += bytes([USED]) * count
        owner.extend([index] * count)
        refs.extend([1] * count)
    for index in range(min(shared, len(refs))):
        refs[index] = 2
    kinds += bytes([CACHED]) * cached
    free = total - len(kinds)
    kinds += bytes([FREE]) * free
    owner.extend([NO_OWNER] * (cached + free))
    refs.extend([0] * (cached + free))
    return BlockMap(total, block_size, bytes(kinds), owner, refs, owners)


def rising(start: float, end: float, samples: int = 900, bend: int = 700, interval_s: float = 2.0) -> Series:
    """Flat at ``start``, then up to ``end``."""
    values = [start + max(0, index - bend) / (samples - bend) * (end - start) for index in range(samples)]
    return Series(interval_s, tuple(values))
