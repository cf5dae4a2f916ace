"""When test traffic has to wait, and when it has to go: real users come first."""

from collections.abc import Iterable

from infer_engine.control.demand import MAX_DURATION_S, MAX_RATE_PER_S
from infer_engine.protocol import RequestRow, TrafficRails

#: No test request is sent while a real one waits longer than this ...
HOLD_BACK_WAIT_S = 1.0
#: ... or while this many test requests wait per ready replica. Admission goes by arrival within a tier, so a
#: real request never has more of them than that before it.
MOST_WAITING_PER_REPLICA = 8
#: Real requests suffer when one waits this long, for whatever reason ...
SUFFER_WAIT_S = 5.0
#: ... or when their TTFT p95 has grown by this factor, and is more than anybody would call quick.
SUFFER_TTFT_FACTOR = 2.0
QUICK_TTFT_S = 0.25
#: ... or when so much of the fleet's KV is in use while any real request is live.
SUFFER_KV_RATIO = 0.90

#: As operators are told of them.
RAILS = TrafficRails(
    hold_wait_s=HOLD_BACK_WAIT_S,
    hold_test_waiting=MOST_WAITING_PER_REPLICA,
    stop_wait_s=SUFFER_WAIT_S,
    quick_ttft_s=QUICK_TTFT_S,
    stop_ttft_factor=SUFFER_TTFT_FACTOR,
    stop_kv_ratio=SUFFER_KV_RATIO,
    max_rate_per_s=MAX_RATE_PER_S,
    max_duration_s=MAX_DURATION_S,
)


def may_send(waiting: Iterable[RequestRow], ready: int) -> int:
    """How many test requests may be sent now. ``waiting`` are all requests that wait."""
    room = MOST_WAITING_PER_REPLICA * max(1, ready)
    for row in waiting:
        if row.synthetic:
            room -= 1
        elif row.queue_wait_s is not None and row.queue_wait_s > HOLD_BACK_WAIT_S:
            return 0
    return max(0, room)


def suffering(
    waiting: Iterable[RequestRow],
    ttft_p95_s: float | None,
    baseline_p95_s: float | None,
    kv_used_ratio: float | None = None,
) -> str | None:
    """Why test traffic has to stop, in words; None while real requests fare well. ``ttft_p95_s`` is that of
    real requests since the traffic began, ``baseline_p95_s`` before it; ``kv_used_ratio`` is the fleet's
    while real requests are live; None when it is not known."""
    if kv_used_ratio is not None and kv_used_ratio > SUFFER_KV_RATIO:
        return f"guard rail: {kv_used_ratio:.0%} of the KV is used while real requests are live"
    for row in waiting:
        if row.synthetic or row.queue_wait_s is None or row.queue_wait_s <= SUFFER_WAIT_S:
            continue
        where = f" on {row.replica}" if row.replica else ""
        why = f" ({row.waiting_reason})" if row.waiting_reason else ""
        return f"guard rail: {row.id} has waited {row.queue_wait_s:.0f} s{where}{why}"
    if ttft_p95_s is None or baseline_p95_s is None:
        return None
    if ttft_p95_s > max(QUICK_TTFT_S, SUFFER_TTFT_FACTOR * baseline_p95_s):
        return f"guard rail: TTFT p95 of real requests rose from {baseline_p95_s:.2f} to {ttft_p95_s:.2f} s"
    return None


def longest_wait_s(waiting: Iterable[RequestRow]) -> float | None:
    """Of the users' requests among those that wait."""
    waits = [row.queue_wait_s for row in waiting if not row.synthetic and row.queue_wait_s is not None]
    return max(waits, default=None)
