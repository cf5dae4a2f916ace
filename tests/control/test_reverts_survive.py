"""A change that was to go back by itself goes back, though the server that promised it is gone."""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from infer_engine.control.headroom import Headroom
from infer_engine.control.limits import LimitChanges
from infer_engine.control.operations import Operations
from infer_engine.control.timed_change import TimedChanges
from infer_engine.fleet import telling
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import ChangeLimits, ChangeTenant, ReplicaSpec, SetHeadroom, TenantLimits
from support.fleets import Bench, running_fleet, until


@asynccontextmanager
async def server(state: Path, ahead_s: float = 0.0) -> AsyncGenerator[tuple[Bench, Operations]]:
    """``ahead_s``: it starts so much later."""
    async with running_fleet(kv_blocks=16, state=state) as bench:
        operations = Operations(time.time, lambda _: None)
        TimedChanges(bench.fleet, operations, lambda: time.time() + ahead_s).resume()
        yield bench, operations
        await operations.close()
        await bench.fleet.specs.save()


async def change(bench: Bench, operations: Operations) -> None:
    """A mark, a limit and a tenant, for a minute."""
    await Headroom(bench.fleet, operations, time.time).set(SetHeadroom(percent=50, revert_after_s=60))
    limits = LimitChanges(bench.fleet, operations, time.time)
    await limits.change_limits(
        ChangeLimits(limits={"max_passes": 3}, replica="r1", revert_after_s=60, actor="ann", reason="try")
    )
    await limits.change_tenant("flood", ChangeTenant(limits={"kv_share": 0.5}, revert_after_s=60))


def marks(bench: Bench) -> list[int | None]:
    return [bench.fleet.replica(each).kv.admit_limit for each in ("r0", "r1")]


async def test_what_is_due_when_a_server_starts_goes_back_at_once(tmp_path: Path) -> None:
    async with server(tmp_path) as (bench, operations):
        await change(bench, operations)
        assert marks(bench) == [8, 8]
        passes = bench.fleet.limits.now().replicas["r0"]["max_passes"]
    async with server(tmp_path, ahead_s=61) as (bench, operations):
        await until(lambda: all(each.phase == "succeeded" for each in operations.newest_first()))
        told = {each.kind: each.message for each in operations.newest_first()}
        assert told == {
            "headroom-revert": "r0 admit limit 8 → 16 blocks, r1 admit limit 8 → 16 blocks",
            "limits-revert": f"r1 max_passes 3 → {passes}",
            "tenant-revert": "kv_share=50% → the default",
        }
        await until(lambda: marks(bench) == [16, 16])
        assert bench.fleet.limits.now().replicas["r1"]["max_passes"] == passes
        assert bench.fleet.tenants.now().tenants == []
    async with server(tmp_path) as (bench, operations):
        assert operations.newest_first() == [], "once"
        await until(lambda: marks(bench) == [16, 16])


async def test_what_is_not_due_yet_waits_for_its_time_and_is_an_operation_again(tmp_path: Path) -> None:
    async with server(tmp_path) as (bench, operations):
        await change(bench, operations)
        due = {each.kind: each.deadline_at for each in operations.newest_first() if each.deadline_at}
        versions = [bench.fleet.specs.version(each) for each in ("replica:r0", "replica:r1", "tenant:flood")]
    async with server(tmp_path) as (bench, operations):
        again = {each.kind: each for each in operations.newest_first()}
        assert {kind: each.deadline_at for kind, each in again.items()} == due
        assert {each.phase for each in again.values()} == {"running"}
        assert (again["limits-revert"].actor, again["limits-revert"].reason) == ("ann", "try")
        await until(lambda: marks(bench) == [8, 8], "they have loaded and were told")
        assert versions == [
            bench.fleet.specs.version(each) for each in ("replica:r0", "replica:r1", "tenant:flood")
        ]
        # Somebody changes part of it again: that does not go back, the rest does.
        await Headroom(bench.fleet, operations, time.time).set(SetHeadroom(percent=25, replica="r0"))
        await LimitChanges(bench.fleet, operations, time.time).change_tenant(
            "flood", ChangeTenant(limits={"kv_share": 0.25})
        )
        assert operations.get(again["tenant-revert"].id).phase == "cancelled"
        assert operations.get(again["headroom-revert"].id).params["replicas"] == ["r1"]
    async with server(tmp_path, ahead_s=61) as (bench, operations):
        await until(lambda: marks(bench) == [12, 16])
        await until(lambda: all(each.phase == "succeeded" for each in operations.newest_first()))
        [flood] = bench.fleet.tenants.now().tenants
        assert flood.limits == TenantLimits(kv_share=0.25)


async def test_a_server_that_dies_before_it_answered_leaves_nothing_that_lasts(tmp_path: Path) -> None:
    """Replicas hang: what was asked of them is wanted, and written down, before any of them answers."""
    found = tmp_path / "found"
    async with server(tmp_path / "lost") as (bench, operations):
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).fall_silent()
        limits = LimitChanges(bench.fleet, operations, time.time)
        asked = [
            Headroom(bench.fleet, operations, time.time).set(SetHeadroom(percent=50, revert_after_s=60)),
            limits.change_tenant("flood", ChangeTenant(limits={"kv_share": 0.5}, revert_after_s=60)),
        ]
        tasks = [asyncio.create_task(each) for each in asked]
        await until(lambda: bench.fleet.tenants.now().tenants and bench.fleet.specs.generation("replica:r1"))
        await bench.fleet.specs.save()
        assert not any(task.done() for task in tasks)
        shutil.copytree(tmp_path / "lost", found)  # as a server that dies now leaves it
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    async with server(found, ahead_s=61) as (bench, operations):
        assert {each.kind for each in operations.newest_first()} == {"headroom-revert", "tenant-revert"}
        await until(lambda: all(each.phase == "succeeded" for each in operations.newest_first()))
        await until(lambda: marks(bench) == [16, 16])
        assert bench.fleet.tenants.now().tenants == []


async def test_what_fails_is_not_moved_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "ANSWER_TIMEOUT_S", 0.05)
    async with running_fleet(kv_blocks=16) as bench:
        bench.launcher.now("r1").fall_silent()
        operations = Operations(time.time, lambda _: None)
        with pytest.raises(Refusal, match="nothing will be moved back by itself"):
            await Headroom(bench.fleet, operations, time.time).set(SetHeadroom(percent=50, revert_after_s=60))
        assert bench.fleet.reverts.pending == {}
        assert operations.newest_first() == []


async def test_what_does_not_fit_any_more_is_not_wanted_back() -> None:
    async with running_fleet(replicas=1, kv_blocks=16) as bench:
        operations = Operations(time.time, lambda _: None)
        limits = LimitChanges(bench.fleet, operations, time.time)
        await limits.change_limits(ChangeLimits(limits={"max_running": 2}, revert_after_s=60))
        [pending] = bench.fleet.reverts.pending.values()
        await limits.change_limits(ChangeLimits(limits={"token_budget": 2}))
        with pytest.raises(Refusal, match="r0: token_budget"):
            await bench.fleet.reverts.put_back_limits(pending)
        assert bench.fleet.specs.spec("replica:r0") == ReplicaSpec(
            limits={"max_running": 2, "token_budget": 2}
        )
        await operations.close()
