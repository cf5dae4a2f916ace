"""Simulated replicas under the real fleet, in simulated time."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from infer_engine.planner import parse_deployment
from infer_engine.protocol import Drain
from support.simulated_fleet import Arrival, SimulatedBench, arrivals, run, spec

DEPLOYMENT = parse_deployment("70b@4×h100")
ROOT = Path(__file__).parents[2]


def test_a_lone_request_takes_exactly_what_the_planner_says(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        await asyncio.sleep(0.7)
        generation = bench.fleet.submit(spec(1_500, 5))
        await bench.finished(generation)
        times = [at_s - generation.arrived_s for at_s in generation.emitted_s]
        assert times[0] == pytest.approx(DEPLOYMENT.prefill_s(1_500), rel=1e-9)
        for index in range(1, 5):
            step_s = DEPLOYMENT.step_s([(1_500 + index - 1, 1)])
            assert times[index] - times[index - 1] == pytest.approx(step_s, rel=1e-6)
        row = bench.fleet.row(generation.id)
        assert row is not None
        assert row.ttft_s == pytest.approx(DEPLOYMENT.prefill_s(1_500), rel=1e-9)

    run(drill, tmp_path, replicas=1)


def test_a_prompt_longer_than_the_budget_takes_the_sum_of_its_chunks(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        generation = bench.fleet.submit(spec(5_000, 1))
        await bench.finished(generation)
        chunks = [DEPLOYMENT.step_s([chunk]) for chunk in ((0, 2_048), (2_048, 2_048), (4_096, 904))]
        assert generation.emitted_s[0] - generation.arrived_s == pytest.approx(sum(chunks), rel=1e-9)

    run(drill, tmp_path, replicas=1)


def test_what_arrives_during_a_step_is_heard_after_it(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        first = bench.fleet.submit(spec(2_000, 1))
        prefill_s = DEPLOYMENT.prefill_s(2_000)
        await asyncio.sleep(prefill_s / 2)
        second = bench.fleet.submit(spec(10, 1, first=50_000))
        await bench.finished(first, second)
        waited_s = second.emitted_s[0] - second.arrived_s
        assert waited_s == pytest.approx(prefill_s / 2 + DEPLOYMENT.prefill_s(10), rel=1e-6)

    run(drill, tmp_path, replicas=1)


async def _mixed(bench: SimulatedBench) -> bytes:
    """Three replicas in trouble: a device fails, one is killed, one is drained."""
    fleet = bench.fleet
    made = await bench.play(arrivals(3, 60, 40.0))
    bench.replicas.crash("r1", "the GPU fell off the bus")
    await asyncio.sleep(0.2)
    bench.replicas.kill("r2")
    made += [fleet.submit(arrival.spec) for arrival in arrivals(4, 40, 1_000.0)]
    await bench.finished(*made)
    return bench.log()


@pytest.mark.apart
def test_the_same_seed_gives_the_same_log_to_the_bit_and_another_one_another(tmp_path: Path) -> None:
    logs = [run(_mixed, tmp_path, seed=seed, kv_blocks=900) for seed in (7, 7, 8)]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]
    assert logs[0].count(b'"step"') > 500
    for kind in (b'"kind":"preempt"', b'"reason":"restarting"', b'"reason":"length"'):
        assert kind in logs[0], kind


@pytest.mark.apart
def test_another_process_with_other_hashes_gives_the_same_log(tmp_path: Path) -> None:
    digests = {_digest_in_a_process(tmp_path / seed, seed) for seed in ("1", "2")}
    assert len(digests) == 1


def _digest_in_a_process(run_dir: Path, hash_seed: str) -> str:
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), str(run_dir)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert len(done.stdout.strip()) == 64, done.stdout
    return done.stdout


def test_a_crashed_replica_says_why_and_lives_again(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        fleet = bench.fleet
        running = fleet.submit(spec(100, 300))
        held_by = running.replica
        assert held_by is not None
        await asyncio.sleep(1.0)
        before = fleet.replica(held_by).incarnation
        bench.replicas.crash(held_by, "the GPU fell off the bus")
        await asyncio.sleep(0.1)
        lost = fleet.replica(held_by)
        assert (lost.state, lost.error) == ("restarting", "the GPU fell off the bus")
        await asyncio.sleep(1.0)
        again = fleet.replica(held_by)
        assert (again.state, again.incarnation, again.error) == ("ready", before + 1, None)
        states = [event.reason for event in bench.events("replica") if event.replica == held_by]
        assert states == ["ready", "failed", "restarting", "ready"]
        await bench.finished(running)
        with pytest.raises(KeyError):
            bench.replicas.kill("r9")

    run(drill, tmp_path, replicas=2)


def test_a_frozen_replica_counts_as_stalled_and_gets_no_more(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        bench.fleet.submit(spec(100, 5_000))
        bench.replicas.freeze("r0")
        while bench.fleet.replica("r0").health != "stalled":  # noqa: ASYNC110  simulated time passes
            await asyncio.sleep(0.01)
        later = [bench.fleet.submit(spec(10, 2)) for _ in range(6)]
        assert {generation.replica for generation in later} == {"r1"}

    run(drill, tmp_path, replicas=2)


def test_loading_takes_its_time_and_requests_are_held_for_so_long(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        assert bench.fleet.now() == pytest.approx(90.0, abs=0.1)

    run(drill, tmp_path, replicas=1, load_s=90.0)


def test_everything_says_that_it_is_simulated(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        status = bench.fleet.status()
        assert status.fleet.simulated
        assert status.fleet.model == "llama-3.1-70b"
        simulation = status.fleet.simulation
        assert simulation is not None
        assert (simulation.deployment, simulation.speed, simulation.seed) == ("llama-3.1-70b@4×h100", 1.0, 7)
        replica = status.replicas[0]
        assert (replica.simulated, replica.device, replica.dtype) == (True, "4×H100", "simulated")

    run(drill, tmp_path, simulate="Llama-70b@4xH100", replicas=2)


if __name__ == "__main__":
    import hashlib

    log = run(_mixed, Path(sys.argv[1]), kv_blocks=900)
    sys.stdout.write(hashlib.sha256(log).hexdigest())


def test_a_drain_and_a_crash_under_load_lose_nothing_and_start_no_preemption_storm(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> tuple[int, list[str | None], int, int]:
        made = await bench.play([Arrival(0.0, spec(500, 400, first=1_000 * number)) for number in range(60)])
        await asyncio.sleep(2.0)
        bench.fleet.draining.drain("r0", Drain())
        await asyncio.sleep(0.5)
        bench.replicas.kill("r1")
        await bench.finished(*made)
        moved = sum(each.moves > 0 for each in made)
        whole = [each.finish_reason for each in made if len(each.emitted) == 400]
        return moved, whole, len(bench.events("preempt")), len(bench.events("move"))

    moved, whole, preemptions, moves = run(drill, tmp_path, replicas=3)
    assert whole == ["length"] * 60
    assert moved >= 30
    assert moves <= 2 * 60
    assert preemptions == 0
