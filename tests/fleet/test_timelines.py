"""What a request's timeline says, in a simulated fleet: every step of its way, and where its time went."""

from pathlib import Path

import pytest
from infer_engine.fleet.timeline import MOST_ENTRIES, GatewayMoments, TimelineLog
from infer_engine.protocol import Timeline
from support.simulated_fleet import SimulatedBench, run, spec


def kinds(timeline: Timeline) -> list[str]:
    return [entry.kind for entry in timeline.entries]


def check_sums(timeline: Timeline) -> None:
    split = timeline.ttft_split_s
    parts = [split.gateway, split.tokenize, split.queue, split.prefill, split.send]
    if None in parts:
        assert split.total is None
    else:
        assert sum(part for part in parts if part is not None) == split.total


def test_a_long_prompt_is_told_step_by_step(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> Timeline:
        generation = bench.fleet.submit(spec(4_000, 3))
        await bench.finished(generation)
        log = bench.fleet.timelines.find(generation.id)
        assert log is not None
        return log.document(generation.id, bench.fleet.moment, simulated=True)

    timeline = run(drill, tmp_path, replicas=1, token_budget=512)
    assert kinds(timeline) == [
        "arrived",
        "routed",
        "queued",
        "admitted",
        "prefill",
        "prefill",
        "prefill",
        "first_token",
        "finished",
    ]
    chunks = [entry for entry in timeline.entries if entry.kind == "prefill"]
    assert [chunk.tokens for chunk in chunks[:2]] == [512, 512]
    # 7 whole chunks and what is left of 4,000: three are told, and how many are not.
    assert (chunks[-1].tokens, chunks[-1].omitted) == (4_000 - 7 * 512, 5)
    times = [entry.at_s for entry in timeline.entries]
    assert times == sorted(times)
    assert timeline.ttft_split_s.total is None  # it did not come over HTTP: nobody knows when a byte was sent
    assert timeline.ttft_split_s.prefill == pytest.approx(times[-2] - times[3])


def test_a_move_says_where_it_came_from(tmp_path: Path) -> None:
    from infer_engine.protocol import Drain

    async def drill(bench: SimulatedBench) -> list[Timeline]:
        made = [bench.fleet.submit(spec(100, 200, first=number * 1_000)) for number in range(8)]
        bench.fleet.draining.drain("r0", Drain())
        await bench.finished(*made)
        logs = [bench.fleet.timelines.find(each.id) for each in made]
        return [
            log.document(each.id, bench.fleet.moment, simulated=True)
            for log, each in zip(logs, made, strict=True)
            if log is not None
        ]

    timelines = run(drill, tmp_path, replicas=2, max_running=2)
    moved = [timeline for timeline in timelines if "moved" in kinds(timeline)]
    assert moved
    for timeline in moved:
        places = [entry.replica for entry in timeline.entries if entry.kind in ("routed", "moved")]
        assert places == ["r0", "r1"]


def test_the_split_sums_to_its_total_whatever_happens() -> None:
    log = TimelineLog()
    log.submitted(10.5, GatewayMoments(10.0, 10.1, 10.2, 10.25, 10.4, 7))
    log.placed(10.5, "r0", "least loaded")
    log.admitted(12.0, 3, resumed=False)
    log.chunk(13.0, 512)
    log.preempted(13.5, "recompute", 3, 512)
    log.admitted(15.0, 3, resumed=True)
    log.first_token(16.0)
    assert log.first_byte(16.25)
    assert not log.first_byte(17.0)
    split = log.split()
    assert split.queue == pytest.approx(1.5 + 1.5)
    assert split.prefill == pytest.approx(1.5 + 1.0)
    assert split.send == 0.25
    assert split.tokenize == pytest.approx(0.15)
    assert split.total == pytest.approx(16.25 - 10.1)
    check_sums(log.document("a", lambda at: at, simulated=False))


def test_a_request_that_waits_counts_with_its_age() -> None:
    log = TimelineLog()
    log.submitted(1.0, GatewayMoments(0.0, 0.0, 0.0, 0.25, 0.5, 7))
    so_far = log.split_so_far(5.0)
    assert so_far is not None
    assert (so_far.queue, so_far.prefill, so_far.total) == (4.0, 0.0, 5.0)
    assert log.split().total is None


def test_a_life_without_end_is_kept_in_bounds() -> None:
    log = TimelineLog()
    log.submitted(0.0, None)
    for number in range(1_000):
        log.admitted(number, 1, resumed=True)
        for _ in range(100):
            log.chunk(number + 0.5, 16)
        log.preempted(number + 0.75, "swap", 1, 16)
    log.finished(2_000.0, "stop", 5, 1)
    timeline = log.document("a", lambda at: at, simulated=False)
    assert len(timeline.entries) == MOST_ENTRIES
    assert (timeline.entries[0].kind, timeline.entries[-1].kind) == ("arrived", "finished")
    assert timeline.omitted == 1 + 1_000 * 5 + 1 - MOST_ENTRIES
