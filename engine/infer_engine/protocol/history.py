"""Series of the last hour."""

from msgspec import Struct

from infer_engine.protocol.words import PROTOCOL_VERSION


class History(Struct, frozen=True, kw_only=True):
    """Series of the past at a fixed step, oldest first, the last one ending at ``until_at``; null where
    nothing was known. Gauges and rates are means over a step, latencies its highest. Keys: kv (0..1),
    running and waiting (requests), tokens_per_s, and in seconds ttft_p95, ttft_p99, itl_p95, itl_p99,
    queue_wait_p99."""

    version: int = PROTOCOL_VERSION
    simulated: bool = False
    until_at: float
    step_s: float
    #: How often it was looked; a step is a multiple of it.
    sample_s: float
    fleet: dict[str, list[float | None]]
    replicas: dict[str, dict[str, list[float | None]]] = {}
