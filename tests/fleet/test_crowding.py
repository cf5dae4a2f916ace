"""Since when one tenant holds the memory that others wait for."""

import asyncio
from pathlib import Path

import pytest
from infer_engine.fleet.crowding import GAP_S, UNSEEN_S, Crowding, crowding
from infer_engine.protocol import TenantUse
from support.simulated_fleet import SimulatedBench, run, spec

POOL = 100


def rows(**blocks: int) -> list[TenantUse]:
    return [TenantUse(tenant=name, kv_blocks=held) for name, held in blocks.items()]


@pytest.mark.parametrize(
    ("held", "who"),
    [
        ({"a": 30, "b": 20}, "a"),
        ({"b": 20, "a": 30}, "a"),
        ({"a": 30, "b": 20, "c": 10}, None),  # others hold as much together
        ({"a": 24, "b": 1}, None),  # little
        ({"a": 90}, None),  # whom would it crowd
        ({}, None),
    ],
)
def test_who_crowds(held: dict[str, int], who: str | None) -> None:
    assert crowding(rows(**held), POOL) == who


def test_all_others_in_one_row_are_nobody() -> None:
    others = TenantUse(tenant="", tenants=9, kv_blocks=60)
    assert crowding([*rows(a=20), others], POOL) is None
    assert crowding([*rows(a=70), others], POOL) == "a"
    assert crowding(rows(a=70, b=1), 0) is None


def test_it_is_told_since_when() -> None:
    crowds, calm, other = rows(a=60, b=1), rows(a=1, b=1), rows(a=1, b=60)
    watched = Crowding()
    assert watched.look(crowds, POOL, 1_000.0) == ("a", 1_000.0)
    assert watched.look(crowds, POOL, 1_030.0) == ("a", 1_000.0)
    assert watched.look(calm, POOL, 1_031.0) is None
    assert watched.look(crowds, POOL, 1_031.0 + GAP_S) == ("a", 1_000.0), "a moment less is no end"
    assert watched.look(calm, POOL, 1_050.0) is None
    assert watched.look(calm, POOL, 1_055.0) is None
    assert watched.look(crowds, POOL, 1_051.0 + GAP_S) == ("a", 1_051.0 + GAP_S)
    assert watched.look(other, POOL, 1_070.0) == ("b", 1_070.0)
    assert watched.look(crowds, POOL, 1_071.0) == ("a", 1_071.0)


def test_where_nobody_looked_nothing_is_made_up() -> None:
    watched = Crowding()
    watched.look(rows(a=60, b=1), POOL, 1_000.0)
    late = 1_001.0 + UNSEEN_S
    assert watched.look(rows(a=60, b=1), POOL, late) == ("a", late)


def test_the_fleet_tells_it(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> tuple[list[TenantUse], list[TenantUse], float]:
        for number in range(2):
            bench.fleet.submit(spec(80_000, 400, first=100_000 * number, tenant="acme"))
        bench.fleet.submit(spec(300, 400, first=900_000, tenant="globex"))
        while not all(row.kv_blocks for row in bench.fleet.rows()):  # noqa: ASYNC110  simulated time passes
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.5)
        first = bench.fleet.status().totals.tenants
        await asyncio.sleep(1.5)
        return first, bench.fleet.status().totals.tenants, bench.fleet.feed.wall()

    first, then, at = run(drill, tmp_path, replicas=1)
    assert [row.tenant for row in first] == ["acme", "globex"]
    assert first[0].crowds_since is not None
    assert first[0].crowds_since <= at
    assert [row.crowds_since for row in then] == [first[0].crowds_since, None]
