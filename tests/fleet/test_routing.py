"""Routing on a simulated fleet: what is counted where, what is undone, and whether it helps."""

import asyncio
from pathlib import Path

import pytest
from infer_engine.fleet.loads import Loads
from support.routing_loads import RULES, outcome
from support.simulated_fleet import SimulatedBench, run, spec


def recomputed(bench: SimulatedBench) -> bool:
    """Whether every load that is kept up by hand is what the ledger says."""
    placer = bench.fleet.placement.placer
    fresh = Loads(placer.ledger, placer.loads.most_waiting)
    for handle in placer.handles.values():
        if handle.ready is None:
            continue
        kept, made = placer.loads.of(handle), fresh.of(handle)
        kept.base_steps, kept.stale = None, False
        if kept != made:
            return False
    return True


def test_loads_are_what_the_ledger_says_through_ends_cancels_drains_and_crashes(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        made = [bench.fleet.submit(spec(200 + 37 * n, 20, first=1_000 * n)) for n in range(40)]
        assert recomputed(bench)
        for turn in range(60):
            await asyncio.sleep(0.01)
            assert recomputed(bench), f"after {turn} turns"
            if turn == 3:
                bench.fleet.cancel(made[0].id)
                bench.fleet.cancel(made[-1].id)
            if turn == 6:
                bench.replicas.crash("r1", "gone")
        await bench.finished(*made)
        placer = bench.fleet.placement.placer
        for handle in placer.handles.values():
            if handle.ready is not None:
                load = placer.loads.of(handle)
                assert (load.running, load.waiting, load.queued_prefill_tokens) == (0, 0, 0)
                assert load.kv_promised_blocks == 0

    run(drill, tmp_path, kv_blocks=300, max_running=6)


def test_the_second_of_the_same_beginning_follows_the_first_and_says_why(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        first = bench.fleet.submit(spec(1_600, 4))
        await bench.finished(first)
        second = bench.fleet.submit(spec(1_700, 4))
        tracked = bench.fleet.placement.ledger.live[second.id]
        assert second.replica == first.replica
        assert tracked.routed_because == "prefix 1600 tokens, of 3"
        assert tracked.queued_prefill_tokens() == 100
        other = bench.fleet.submit(spec(1_700, 4, tenant="other"))
        assert "prefix" not in (bench.fleet.placement.ledger.live[other.id].routed_because or "")
        await bench.finished(second, other)

    run(drill, tmp_path)


def test_what_was_never_computed_is_not_held(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        prefixes = bench.fleet.placement.routing.prefixes
        assert prefixes is not None
        made = bench.fleet.submit(spec(1_600, 4))
        assert len(prefixes) == 100
        bench.fleet.cancel(made.id)
        await bench.finished(made)
        assert len(prefixes) == 0
        await bench.finished(bench.fleet.submit(spec(1_600, 4)))
        assert len(prefixes) == 100
        for replica in bench.fleet.replica_ids():
            bench.replicas.crash(replica, "gone")
        await asyncio.sleep(60)
        await bench.finished(again := bench.fleet.submit(spec(1_600, 4)))
        assert again.replica is not None

    run(drill, tmp_path)


def test_the_index_knows_no_block_that_was_evicted(tmp_path: Path) -> None:
    """After everything has ended, what is known to be held is what the one replica's pool has."""

    async def drill(bench: SimulatedBench) -> None:
        for n in range(30):
            await bench.finished(bench.fleet.submit(spec(320, 20, first=1_000 * n)))
        routing = bench.fleet.placement.routing
        assert routing.prefixes is not None
        loop = next(iter(bench.replicas.by_identity.values()))._loop
        assert loop is not None
        assert set(routing.prefixes._holders) == set(loop.scheduler.pool.index.blocks)

    run(drill, tmp_path, replicas=1, kv_blocks=100, host_blocks=0)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("workload", "most"), [("prefix-heavy", 1.0), ("uniform", 1.05), ("adversarial", 1.05)]
)
def test_first_tokens_come_sooner_than_by_other_rules(workload: str, most: float, tmp_path: Path) -> None:
    """Simulated time: the same figures on every machine."""
    p95_s = {
        rule: outcome(workload, made(), 1, 200, tmp_path / rule.replace(" ", "")).ttft_p95_s
        for rule, made in RULES.items()
    }
    ours = p95_s.pop("ours")
    for rule, theirs_s in p95_s.items():
        assert ours <= most * theirs_s, f"{ours} s, {rule} {theirs_s} s"
