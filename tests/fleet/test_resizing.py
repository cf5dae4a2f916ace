"""Replicas come and go while the fleet runs, and everybody who looks at them copes."""

import asyncio
import time
from pathlib import Path

import pytest
from infer_engine.control.operations import Operations
from infer_engine.control.scaling import Scales
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import ChangeTenant, Drain, Fence, Operation, Scale
from support.fleets import Bench, finished, running_fleet, until
from support.simulated_fleet import SimulatedBench, run, spec


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


class Scaled:
    def __init__(self, bench: Bench) -> None:
        self.operations = Operations(time.time, lambda _: None)
        self.scales = Scales(bench.fleet, self.operations, time.time)

    async def to(self, command: Scale) -> Operation:
        operation = self.scales.scale(command).operation
        assert operation is not None
        await until(lambda: self.operations.get(operation.id).ended_at is not None, "the scale ends")
        return self.operations.get(operation.id)


def code(scaled: Scaled, command: Scale) -> str:
    with pytest.raises(Refusal) as refused:
        scaled.scales.scale(command)
    return refused.value.problem.code


async def test_up_and_down_again() -> None:
    async with running_fleet(replicas=2, max_replicas=5) as bench:
        fleet, scaled = bench.fleet, Scaled(bench)
        observer = fleet.observe(None, 20, blocks=True)
        await fleet.tenants.change("ann", ChangeTenant(limits={"kv_share": 0.5}))
        operation = await scaled.to(Scale(replicas=4))
        assert (operation.phase, operation.done, operation.total) == ("succeeded", 2, 2)
        assert fleet.replica_ids() == ["r0", "r1", "r2", "r3"]
        await until(lambda: fleet.frame("r3").blocks is not None, "new ones are observed like the others")
        loop = bench.launcher.now("r3").loop
        assert loop is not None
        assert "ann" in loop.scheduler.limits.tenants
        generations = [bench.submit(4, 3) for _ in range(8)]
        await finished(*generations)
        assert {each.replica for each in generations} == {"r0", "r1", "r2", "r3"}

        operation = await scaled.to(Scale(replicas=2, victims=["r0"]))
        assert operation.phase == "succeeded"
        assert fleet.replica_ids() == ["r1", "r2"], "r0 by name, then the youngest of equals"
        assert {each.id for each in fleet.status().replicas} == {"r1", "r2"}
        again = [bench.submit(4, 3) for _ in range(4)]
        await finished(*again)
        assert {each.replica for each in again} == {"r1", "r2"}
        assert "r0" in {row.replica for row in fleet.rows(state="finished")}, "what it did is still told"
        assert (await scaled.to(Scale(replicas=3))).params["started"] == ["r4"], "no id comes again"
        observer.close()
        await scaled.operations.close()


async def test_what_a_victim_has_goes_on_elsewhere() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        scaled = Scaled(bench)
        generations = [bench.submit(4, 6) for _ in range(2)]
        [mine] = [each for each in generations if each.replica == "r1"]
        await bench.step_until("r1", lambda: bool(mine.emitted))
        operation = scaled.scales.scale(Scale(replicas=1, victims=["r1"])).operation
        assert operation is not None
        await until(lambda: "r1 drains: 1 running" in str(scaled.operations.get(operation.id).blocked_by))
        assert code(scaled, Scale(replicas=2)) == "scale_under_way"
        spec = bench.fleet.status().fleet.spec
        assert spec is not None
        assert spec.replicas == 1
        bench.launcher.now("r1").runner.release()
        bench.launcher.now("r0").runner.release()
        await until(lambda: bench.fleet.replica_ids() == ["r0"])
        await finished(*generations)
        assert (mine.finish_reason, mine.emitted, mine.replica) == ("length", generations[0].emitted, "r0")
        await scaled.operations.close()


async def test_at_the_deadline_what_is_left_goes_on_as_after_a_crash() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        scaled = Scaled(bench)
        generations = [bench.submit(4, 6) for _ in range(2)]
        await until(lambda: bench.launcher.now("r1").runner.waiting_for_permission)
        operation = scaled.scales.scale(Scale(replicas=1, victims=["r1"], deadline_s=0.0)).operation
        assert operation is not None
        bench.launcher.now("r1").runner.release()
        await until(lambda: bench.fleet.replica_ids() == ["r0"])
        bench.launcher.now("r0").runner.release()
        await finished(*generations)
        await scaled.operations.close()


async def test_a_shortfall_is_said() -> None:
    async with running_fleet(replicas=1) as bench:
        scaled = Scaled(bench)
        bench.launcher.load_error = ("no such device", 3)
        operation = await scaled.to(Scale(replicas=2))
        assert operation.phase == "failed"
        assert operation.message == "r1 is failed: no such device (not started again)"
        assert (await scaled.to(Scale(replicas=1))).params["ended"] == ["r1"], "what serves least goes first"
        assert bench.fleet.capacity.ready_replicas() == ["r0"]
        await scaled.operations.close()


async def test_refusals() -> None:
    async with running_fleet(replicas=2, max_replicas=3) as bench:
        scaled = Scaled(bench)
        assert code(scaled, Scale(replicas=4)) == "invalid_field"
        assert code(scaled, Scale(replicas=-1)) == "invalid_field"
        assert code(scaled, Scale(replicas=1, victims=["r9"])) == "invalid_field"
        assert code(scaled, Scale(replicas=2, victims=["r0"])) == "invalid_field"
        assert code(scaled, Scale(replicas=0)) == "would_break_min_ready"
        bench.fleet.draining.drain("r1", Drain())
        await until(lambda: bench.fleet.replica("r1").state == "drained")
        assert code(scaled, Scale(replicas=1, victims=["r0"])) == "would_break_min_ready"
        dry = scaled.scales.scale(Scale(replicas=1, dry_run=True))
        assert dry.operation is None
        assert bench.fleet.replica_ids() == ["r0", "r1"]
        assert (await scaled.to(Scale(replicas=0, force=True))).phase == "succeeded"
        assert bench.fleet.replica_ids() == []
        with pytest.raises(Refusal):
            bench.submit()
        assert (await scaled.to(Scale(replicas=1))).phase == "succeeded"
        await finished(bench.submit())
        await scaled.operations.close()


async def test_only_one_drains_at_a_time() -> None:
    async with running_fleet(replicas=3, held=True) as bench:
        generations = [bench.submit(4, 9) for _ in range(3)]
        await bench.step_until("r0", lambda: any(each.emitted for each in generations))
        bench.fleet.draining.drain("r0", Drain())
        with pytest.raises(Refusal) as refused:
            bench.fleet.draining.drain("r1", Drain())
        assert (refused.value.problem.status, refused.value.problem.code) == (429, "max_unavailable")
        assert refused.value.retry_after_s
        bench.fleet.draining.drain("r1", Drain(force=True))
        assert bench.fleet.capacity.ready_replicas() == ["r2"]


async def test_the_fenced_do_not_count() -> None:
    async with running_fleet(replicas=2, max_replicas=4) as bench:
        bench.fleet.fencing.fence("r0", "")
        await bench.ready(2)
        assert bench.fleet.resizing.most == 3
        effect = bench.fleet.resizing.predict(Scale(replicas=2))
        assert effect.summary == ["there are 2 replicas already"]
        assert bench.fleet.fencing.predict("r0", Fence()).summary[0].startswith("r0 is fenced already")


@pytest.mark.apart
def test_a_simulated_fleet_grows_and_shrinks_under_load(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        operations = Operations(bench.fleet.now, lambda _: None)
        scales = Scales(bench.fleet, operations, bench.fleet.now)
        made = [bench.fleet.submit(spec(500, 100, first=index * 600)) for index in range(40)]

        async def to(replicas: int) -> None:
            operation = scales.scale(Scale(replicas=replicas)).operation
            assert operation is not None
            while operations.get(operation.id).ended_at is None:  # noqa: ASYNC110  simulated time passes
                await asyncio.sleep(0.1)
            assert operations.get(operation.id).phase == "succeeded", operations.get(operation.id)

        await to(5)
        # Others than before, or they would go to whom they were computed by.
        made += [bench.fleet.submit(spec(500, 100, first=index * 600)) for index in range(40, 80)]
        assert {each.replica for each in made} == {"r0", "r1", "r2", "r3", "r4"}
        await to(1)
        assert len(bench.fleet.capacity.ready_replicas()) == 1
        await bench.finished(*made)
        assert {(each.finish_reason, len(each.emitted)) for each in made} == {("length", 100)}
        await operations.close()

    run(drill, tmp_path, replicas=3, load_s=2.0)
