"""Fence, release, restart, shed over the real routes and as operations, on a fleet of threads."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from infer_engine.control.lifecycle import Lifecycles
from infer_engine.control.operations import Operations
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import CommandResult, Drain, Fence, Operation, Release, Restart, Shed
from support.asking import command, ended, refused
from support.fleets import Bench, finished, running_fleet, until
from support.server import EngineServer


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


class Commanded:
    def __init__(self, bench: Bench) -> None:
        self.operations = Operations(time.time, lambda _: None)
        self.lifecycles = Lifecycles(bench.fleet, self.operations, time.time)

    async def end(self, result: CommandResult) -> Operation:
        operation = result.operation
        assert operation is not None
        await until(lambda: self.operations.get(operation.id).ended_at is not None, "it ends")
        return self.operations.get(operation.id)


@asynccontextmanager
async def commanded(bench: Bench) -> AsyncGenerator[Commanded]:
    made = Commanded(bench)
    try:
        yield made
    finally:
        await made.operations.close()


async def test_fence_ends_when_the_process_has_and_release_when_it_has_loaded() -> None:
    async with running_fleet(replicas=2) as bench, commanded(bench) as by:
        operation = await by.end(by.lifecycles.fence("r0", Fence(reason="fan", actor="ann")))
        assert (operation.phase, operation.message) == (
            "succeeded",
            "its requests have left it; r2 starts in its place",
        )
        again = by.lifecycles.fence("r0", Fence()).operation
        assert again is not None
        assert again.message == "it was fenced already"
        with pytest.raises(Refusal) as refused:
            by.lifecycles.restart("r0", Restart())
        assert "release starts it" in refused.value.problem.detail
        assert bench.fleet.replica("r0").state == "fenced"
        operation = await by.end(by.lifecycles.release("r0", Release()))
        assert (operation.phase, operation.message) == ("succeeded", "r0 is ready")
        assert by.lifecycles.release("r0", Release(dry_run=True)).operation is None


async def test_restart_drains_first_and_serves_again() -> None:
    async with running_fleet(replicas=2, held=True) as bench, commanded(bench) as by:
        generations = [bench.submit(4, 6) for _ in range(2)]
        [mine] = [each for each in generations if each.replica == "r0"]
        await bench.step_until("r0", lambda: bool(mine.emitted))
        result = by.lifecycles.restart("r0", Restart(mode="wait", reason="driver"))
        assert result.operation is not None
        spec = bench.fleet.replica("r0").spec
        assert spec is not None
        assert not spec.cordoned, "a server that ends now starts it as one that serves"
        await until(lambda: mine.id in str(by.operations.get(str(result.operation and result.operation.id))))
        joined = by.lifecycles.restart("r0", Restart(force=True)).operation
        assert joined is not None
        assert joined.id == result.operation.id
        bench.launcher.held = False
        for each in ("r0", "r1"):
            bench.launcher.now(each).runner.release()
        operation = await by.end(result)
        assert (operation.phase, operation.message) == ("succeeded", "r0 is ready")
        assert (mine.finish_reason, bench.fleet.replica("r0").incarnation) == ("length", 2)
        assert [each.reason for each in bench.events("replica") if each.replica == "r0"][-4:] == [
            "draining",
            "drained",
            "restarting",
            "ready",
        ]


async def test_restart_at_its_deadline_loses_nobody_and_keeps_a_drained_one_drained() -> None:
    async with running_fleet(replicas=2, held=True) as bench, commanded(bench) as by:
        generations = [bench.submit(4, 6) for _ in range(2)]
        result = by.lifecycles.restart("r0", Restart(mode="wait", deadline_s=0.0))
        bench.launcher.held = False
        for each in ("r0", "r1"):
            bench.launcher.now(each).runner.release()
        assert (await by.end(result)).phase == "succeeded"
        await finished(*generations)
        assert {each.error_code for each in generations} <= {None, "replica_lost"}, "as after a crash"

        bench.fleet.draining.drain("r1", Drain())
        await until(lambda: bench.fleet.replica("r1").state == "drained")
        operation = await by.end(by.lifecycles.restart("r1", Restart()))
        assert operation.phase == "succeeded"
        await until(lambda: bench.fleet.replica("r1").state == "drained")
        assert bench.fleet.replica("r1").incarnation == 2
        with pytest.raises(Refusal) as refused:
            by.lifecycles.restart("r0", Restart())
        assert refused.value.problem.code == "would_break_min_ready"


async def test_shed_preempts_batch_and_off_lets_it_go_on() -> None:
    async with running_fleet(replicas=1, held=True) as bench, commanded(bench) as by:
        batch, real = bench.submit(4, 6, tier="batch"), bench.submit(4, 6)
        await bench.step_until("r0", lambda: batch.emitted and real.emitted)
        effect = by.lifecycles.shed(Shed(on=True, dry_run=True)).effect
        assert (effect.numbers["running"], effect.numbers["waiting"]) == (1, 0)
        result = by.lifecycles.shed(Shed(on=True))
        await bench.step_until("r0", lambda: real.finished)
        assert (await by.end(result)).phase == "succeeded"
        assert not batch.finished
        preempted = [event.request for event in bench.events("preempt")]
        assert preempted == [batch.id]
        bench.launcher.now("r0").runner.release()
        more = bench.submit(4, 2)
        await finished(more)
        await until(lambda: bench.fleet.replica("r0").health == "idle", "what is shed is no work")
        bench.ahead_s += 60
        await until(lambda: bench.fleet.replica("r0").health == "idle")
        assert not batch.finished
        shown = bench.fleet.status().fleet.spec
        assert shown is not None
        assert shown.shed
        assert (await by.end(by.lifecycles.shed(Shed(on=False)))).phase == "succeeded"
        await finished(batch)
        assert (batch.finish_reason, len(batch.emitted)) == ("length", 6)


async def test_over_the_routes(pair: EngineServer) -> None:
    dry = await command(pair, "/replicas/r0:fence", dry_run=True)
    assert dry.effect.numbers["ready_after"] == 1
    assert (await refused(pair, "/replicas/r9:fence")).code == "unknown_replica"
    assert (await refused(pair, "/replicas/r0:restart", deadline_s=-1)).field == "deadline_s"
    assert (await refused(pair, "/scale", replicas=99)).field == "replicas"
    assert (await refused(pair, "/scale")).field == "replicas"
    assert (await refused(pair, "/shed", on="yes")).field == "on"
    shed = await command(pair, "/shed", on=True, reason="storm")
    assert (await ended(pair, shed.operation)).phase == "succeeded"
    status = pair.status()
    assert status.fleet.spec is not None
    assert status.fleet.spec.shed
    before = status.replicas[0]
    await command(pair, "/shed", on=False)
    restarted = await command(pair, "/replicas/r0:restart", reason="test")
    assert (await ended(pair, restarted.operation)).phase == "succeeded"
    after = pair.status().replicas[0]
    assert (after.incarnation, after.pid == before.pid) == (before.incarnation + 1, False)
    pair.wait_ready()
