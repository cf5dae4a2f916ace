"""Who uses the fleet, as watchers are told: the largest tenants, all others in one row, and who holds a
pool."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from infer_engine.fleet.generation import Refusal
from infer_engine.fleet.tenant_use import MOST_ROWS
from infer_engine.protocol import Replica, Totals
from support.simulated_fleet import SimulatedBench, run, spec


def test_the_largest_are_told_one_by_one_and_the_others_as_one(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> tuple[Totals, list[Replica], int]:
        for number in range(MOST_ROWS + 3):
            bench.fleet.submit(spec(200 * (number + 1), 400, first=4_000 * number, tenant=f"t{number:02}"))
        bench.fleet.submit(spec(9_000, 400, first=90_000, tenant="t18", tier="batch"))
        bench.fleet.submit(spec(300, 400, first=80_000, tenant="probe", synthetic=True))
        while bench.fleet.status().totals.waiting:  # noqa: ASYNC110  simulated time passes
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.5)
        status = bench.fleet.status()
        held = sum(row.kv_blocks for row in bench.fleet.rows(None, None))
        return status.totals, status.replicas, held

    totals, replicas, held = run(drill, tmp_path, replicas=1)
    rows = totals.tenants
    assert [row.tenant for row in rows[:3]] == ["t18", "t17", "t16"]
    assert rows[0].running == 2
    assert rows[0].prompt_tokens_p50 == (3_800 + 9_000) / 2
    assert rows[0].requests_per_min == 2
    others = rows[MOST_ROWS]
    assert len(rows) == MOST_ROWS + 1
    assert (others.tenant, others.tenants, others.running) == ("", 4, 4)
    assert others.requests_per_min == 3  # the probe is not counted
    assert sum(row.kv_blocks for row in rows) == held
    assert (totals.taken_requests, totals.taken_prompt_tokens) == (
        MOST_ROWS + 4,
        9_000 + sum(200 * (number + 1) for number in range(MOST_ROWS + 3)),
    )
    assert [row.tenant for row in replicas[0].tenants] == ["t18", "t17", "t16"]
    assert replicas[0].batch is not None
    assert replicas[0].batch.running == 1
    assert replicas[0].batch.kv_blocks > 9_000 // 16


def test_refusals_are_counted_by_tenant(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> Totals:
        for _ in range(3):
            with pytest.raises(Refusal):
                bench.fleet.submit(replace(spec(100_000_000 // 1_000, 1_000_000), tenant="greedy"))
        return bench.fleet.status().totals

    totals = run(drill, tmp_path, replicas=1)
    assert [(row.tenant, row.refused_per_min, row.requests_per_min) for row in totals.tenants] == [
        ("greedy", 3, 0)
    ]
    assert totals.taken_requests == 0


def test_what_is_looked_up_in_the_prefix_cache_is_counted(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> Replica:
        for _ in range(2):
            await bench.finished(bench.fleet.submit(spec(1_600, 2)))
        return bench.fleet.replica("r0")

    replica = run(drill, tmp_path, replicas=1)
    assert replica.prefix_queries_tokens == 2 * 1_600
    assert replica.prefix_hit_tokens == 1_599  # all but the one whose logits are wanted


def test_rates_of_test_traffic_are_unknown_not_none(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> Totals:
        bench.fleet.submit(spec(300, 400, first=80_000, tenant="probe", synthetic=True))
        bench.fleet.submit(spec(300, 400, tenant="user"))
        await asyncio.sleep(1.5)
        return bench.fleet.status().totals

    rows = {row.tenant: row for row in run(drill, tmp_path, replicas=1).tenants}
    assert rows["probe"].running == 1
    assert (rows["probe"].requests_per_min, rows["probe"].refused_per_min) == (None, None)
    assert (rows["user"].requests_per_min, rows["user"].refused_per_min) == (1, 0)


def test_what_the_requests_of_a_tenant_share_counts_once(tmp_path: Path) -> None:
    """Eight of the same long prompt hold its blocks together; they do not hold eight times as many."""

    async def drill(bench: SimulatedBench) -> tuple[Totals, list[Replica], int, int]:
        bench.fleet.submit(spec(16_000, 4_000, tenant="acme"))
        while not any(row.generated_tokens for row in bench.fleet.rows()):  # noqa: ASYNC110  simulated time passes
            await asyncio.sleep(0.5)
        for _ in range(7):
            bench.fleet.submit(spec(16_000, 4_000, tenant="acme"))
        while bench.fleet.status().totals.running != 8:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.5)
        status = bench.fleet.status()
        [acme] = bench.fleet.tenants.now().tenants
        tables = sum(row.kv_blocks for row in bench.fleet.rows())
        return status.totals, status.replicas, tables, acme.kv_blocks

    totals, (replica,), tables, listed = run(drill, tmp_path, replicas=1)
    assert replica.kv.used is not None
    assert tables > 4 * replica.kv.used
    assert abs(totals.tenants[0].kv_blocks - replica.kv.used) <= 16
    assert abs(replica.tenants[0].kv_blocks - replica.kv.used) <= 16
    assert abs(listed - replica.kv.used) <= 16
