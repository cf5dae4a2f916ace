"""What happens when too many operations run: a refused command has no effect, and what lowers the load is
never refused."""

import asyncio
import time
from collections.abc import AsyncGenerator

import httpx2
import pytest
from infer_engine.control import operations as module
from infer_engine.control.api import build_control
from infer_engine.control.context import Context
from infer_engine.control.drains import Drains
from infer_engine.control.headroom import Headroom
from infer_engine.control.operations import Handle, Operations
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Drain, Inject, SetHeadroom
from support.fleets import Bench, running_fleet, spec, until
from support.server import JSON


async def forever(_handle: Handle) -> None:
    await asyncio.Event().wait()


def fill(operations: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNNING", 1)
    operations.start("other", "fleet", forever, actor="", reason="")


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    async with running_fleet(replicas=2) as bench:
        yield bench


@pytest.fixture
async def operations(bench: Bench) -> AsyncGenerator[Operations]:
    operations = Operations(time.time, lambda _: None)
    yield operations
    await operations.close()


async def test_refused_traffic_leaves_no_trace(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(context.operations, monkeypatch)
    before = context.injector.status()
    with pytest.raises(Refusal) as refused:
        context.injector.start(Inject())
    assert refused.value.problem.code == "too_many_operations"
    assert context.injector.status() == before
    assert not context.injector.status().running


async def test_a_refused_mark_does_not_move(
    bench: Bench, operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(operations, monkeypatch)
    marks = Headroom(bench.fleet, operations, time.time)
    with pytest.raises(Refusal) as refused:
        await marks.set(SetHeadroom(percent=50, revert_after_s=60))
    assert refused.value.problem.code == "too_many_operations"
    assert bench.fleet.replica("r0").kv.admit_limit == 16
    await marks.set(SetHeadroom(percent=50))  # takes no time, so it takes no room
    assert bench.fleet.replica("r0").kv.admit_limit == 8


async def test_a_drain_is_never_refused_for_it(
    bench: Bench, operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(operations, monkeypatch)
    result = Drains(bench.fleet, operations, time.time).drain("r0", Drain())
    assert result.operation is not None
    operation_id = result.operation.id
    await until(lambda: operations.get(operation_id).phase == "succeeded")


async def test_a_cancel_is_never_refused_and_runs_once(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(context.operations, monkeypatch)
    monkeypatch.setattr(context.fleet, "cancel", lambda *_args, **_named: True)  # a replica that is silent
    generation = context.fleet.submit(spec())
    transport = httpx2.ASGITransport(app=build_control(context, lambda _: "admin"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=JSON) as client:
        answers = [await client.post(f"/control/v1/requests/{generation.id}:cancel") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert len({answer.json()["operation"]["id"] for answer in answers}) == 1


async def test_a_replica_that_restarts_is_moved_back_too(bench: Bench, operations: Operations) -> None:
    marks = Headroom(bench.fleet, operations, time.time)
    first = await marks.set(SetHeadroom(percent=50, revert_after_s=0.5))
    assert first.operation is not None
    bench.launcher.load_gate.clear()
    bench.launcher.now("r0").kill()
    await until(lambda: bench.fleet.replica("r0").state == "restarting")
    revert_id = first.operation.params["revert_operation"]
    await until(lambda: operations.get(revert_id).phase == "succeeded")
    bench.launcher.load_gate.set()
    await bench.ready()
    await until(lambda: bench.fleet.replica("r0").kv.admit_limit == 16)


async def test_moving_one_mark_leaves_the_others_reverts(bench: Bench, operations: Operations) -> None:
    marks = Headroom(bench.fleet, operations, time.time)
    first = await marks.set(SetHeadroom(percent=50, revert_after_s=0.2))
    assert first.operation is not None
    revert_id = first.operation.params["revert_operation"]
    await marks.set(SetHeadroom(replica="r0", percent=25))
    assert operations.get(revert_id).params["replicas"] == ["r1"]
    await until(lambda: operations.get(revert_id).phase == "succeeded")
    assert bench.fleet.replica("r0").kv.admit_limit == 12
    assert bench.fleet.replica("r1").kv.admit_limit == 16
    assert operations.get(revert_id).message == "r1 admit limit 8 → 16 blocks"
