"""What else can happen to a sequence on its way from one replica to another."""

import time
from dataclasses import replace

import pytest
from infer_engine.control.drains import Drains
from infer_engine.control.operations import Operations
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Generation
from infer_engine.protocol import Drain
from support.fleets import Bench, finished, running_fleet, spec, until


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


async def held_after_a_loss(bench: Bench, deadline_s: float | None = None) -> Generation:
    """A sequence with tokens whose only replica died, and does not come back by itself."""
    one = bench.fleet.submit(replace(spec(4, 40), deadline_s=deadline_s, streams=True))
    await bench.step_until("r0", lambda: len(one.emitted) >= 3)
    bench.launcher.load_gate.clear()
    bench.launcher.now("r0").kill()
    await until(lambda: one.replica is None, "it is held")
    assert [row.waiting_reason for row in bench.fleet.held_rows()] == ["loading"]
    return one


async def test_a_deadline_passes_while_it_is_held_after_a_loss() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        one = await held_after_a_loss(bench, deadline_s=30.0)
        told = list(one.emitted)
        bench.ahead_s += 29.0
        bench.fleet.placement.placer.end_overdue()
        assert not one.finished
        bench.ahead_s += 2.0
        await finished(one)
        assert (one.finish_reason, one.error_code, one.emitted) == ("error", "deadline_exceeded", told)
        assert bench.fleet.held_rows() == []
        bench.launcher.load_gate.set()
        await bench.ready()
        assert bench.fleet.rows() == [], "the replica that comes back hears nothing of it"
        assert bench.launcher.now("r0").runner.info.kv_blocks == 64


async def test_its_client_leaves_while_it_is_held_after_a_loss() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        one = await held_after_a_loss(bench)
        assert bench.fleet.cancel(one.id, code="client_disconnected")
        assert (one.finish_reason, one.error_code) == ("cancelled", "client_disconnected"), "at once"
        bench.launcher.held = False
        bench.launcher.load_gate.set()
        await bench.ready()
        other = bench.submit(4, 3)
        bench.launcher.now("r0").runner.release()
        await finished(other)
        assert bench.steps("r0")[-1].kv_used == 0
        (lost,) = bench.events("move")
        assert (lost.request, lost.to_replica) == (one.id, None), "it never went on"


async def test_a_request_that_waits_for_its_replicas_next_life_tells_so_at_the_time() -> None:
    async with running_fleet(replicas=1, kv_blocks=64, held=True) as bench:
        one = await held_after_a_loss(bench)
        (lost,) = bench.events("move")
        assert (lost.replica, lost.to_replica, lost.reason) == ("r0", None, "replica_lost")
        assert (lost.tokens, lost.message) == (4 + len(one.emitted), "waits for a replica")
        bench.launcher.held = False
        bench.launcher.load_gate.set()
        await bench.ready()
        bench.launcher.now("r0").runner.release()
        await finished(one)
        _, back = bench.events("move")
        assert (back.replica, back.to_replica, back.message) == ("r0", "r0", "goes on at r0 again")
        assert one.moves == 1


async def test_its_client_leaves_between_two_replicas() -> None:
    """The old one has been told to let go and has not heard it yet."""
    async with running_fleet(replicas=2, kv_blocks=64, held=True) as bench:
        generations = [bench.submit(4, 40) for _ in range(2)]
        for replica in ("r0", "r1"):
            await bench.step_until(
                replica, lambda replica=replica: all(g.emitted for g in generations if g.replica == replica)
            )
        one = next(each for each in generations if each.replica == "r0")
        bench.fleet.draining.drain("r0", Drain(mode="migrate"))
        bench.fleet.cancel(one.id, code="client_disconnected")
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.release()
        await finished(*generations)
        assert (one.finish_reason, one.error_code) == ("cancelled", "client_disconnected")
        assert [each.moves for each in generations] == [0, 0]
        await until(lambda: bench.fleet.replica("r0").state == "drained")
        await until(lambda: bench.steps("r0")[-1].kv_used == 0)
        assert bench.steps("r1")[-1].kv_used == 0


async def test_at_a_drains_deadline_those_that_found_no_room_are_cancelled_and_the_moved_go_on() -> None:
    async with running_fleet(replicas=2, kv_blocks=64, max_running=2, held=True) as bench:
        fleet = bench.fleet
        generations = [bench.submit(4, 60) for _ in range(4)]
        for replica in ("r0", "r1"):
            await bench.step_until(
                replica, lambda replica=replica: all(g.emitted for g in generations if g.replica == replica)
            )
        mine = [each for each in generations if each.replica == "r0"]
        others = [each for each in generations if each.replica == "r1"]
        fleet.cancel(others[0].id)  # room for one of the two
        await bench.step_until("r1", lambda: others[0].finished)
        operations = Operations(time.time, lambda _: None)
        command = Drain(mode="migrate", deadline_s=0.3, on_deadline="cancel")
        begun = Drains(fleet, operations, time.time).drain("r0", command).operation
        assert begun is not None
        await bench.step_until("r0", lambda: any(each.moves for each in mine))
        await until(lambda: "cancelled" in operations.get(begun.id).message, "the deadline")
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.release()
        await finished(*generations)
        [moved], [stayed] = ([g for g in mine if g.moves], [g for g in mine if not g.moves])
        assert (moved.finish_reason, len(moved.emitted), moved.replica) == ("length", 60, "r1")
        assert moved.emitted == [1004 + number for number in range(60)]
        assert (stayed.finish_reason, stayed.error_code) == ("cancelled", "replica_draining")
        await until(lambda: operations.get(begun.id).phase == "succeeded")
        assert fleet.replica("r0").state == "drained"
        await operations.close()
