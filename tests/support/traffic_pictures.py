"""What the console knows while test traffic runs, and after its guard rails ended it."""

import dataclasses

from infer_console.state.picture import Picture
from infer_engine.protocol import Operation, TrafficFigures, TrafficRails, TrafficStatus
from msgspec.structs import replace
from support import pictures
from support.pictures import NOW

RAILS = TrafficRails(
    hold_wait_s=1.0,
    hold_test_waiting=8,
    stop_wait_s=5.0,
    quick_ttft_s=0.25,
    stop_ttft_factor=2.0,
    stop_kv_ratio=0.9,
    max_rate_per_s=500.0,
    max_duration_s=600.0,
)
RUNNING = TrafficStatus(
    running=True,
    profile="mixed",
    rate_per_s=4.0,
    started_at=NOW - 220,
    ends_at=NOW + 80,
    sent=871,
    in_flight=23,
    finished=846,
    failed=2,
    not_sent=9,
    seed=7,
    most_in_flight=128,
    held_back=True,
    before=TrafficFigures(
        requests=412, ttft_p95_s=0.61, itl_p95_s=0.031, queue_wait_p95_s=0.02, kv_used_ratio=0.41
    ),
    users=TrafficFigures(
        requests=398, ttft_p95_s=1.08, itl_p95_s=0.034, queue_wait_p95_s=0.4, kv_used_ratio=0.83
    ),
    test=TrafficFigures(
        requests=241, ttft_p95_s=1.4, itl_p95_s=0.034, queue_wait_p95_s=0.7, kv_used_ratio=0.83
    ),
    user_wait_s=1.2,
    users_live=True,
    rails=RAILS,
)
ENDED = replace(
    RUNNING,
    running=False,
    tier="batch",
    rate_per_s=None,
    concurrency=24,
    held_back=False,
    in_flight=0,
    user_wait_s=None,
    stopped_because="guard rail: req-4f has waited 5 s on r1 (kv)",
)


def with_traffic(traffic: TrafficStatus) -> Picture:
    picture = pictures.incident()
    operation = Operation(
        id="op-121",
        kind="inject",
        target="fleet",
        phase="running" if traffic.running else "failed",
        actor="kim",
        reason="can it take the morning?",
        started_at=NOW - 220,
        ended_at=None if traffic.running else NOW - 3,
        done=traffic.finished,
        total=traffic.sent,
        message=traffic.stopped_because or "",
    )
    assert picture.fleet is not None
    return dataclasses.replace(
        picture,
        fleet=replace(picture.fleet, traffic=traffic),
        operations=(operation,) if traffic.profile else (),
    )
