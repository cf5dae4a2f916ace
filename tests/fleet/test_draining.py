"""Drain and undrain on a running fleet: nobody is lost, nothing new enters, drained means empty."""

import pytest
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Drain
from support.fleets import finished, running_fleet, until


async def test_running_ones_finish_and_the_queue_moves_in_order() -> None:
    async with running_fleet(replicas=2, max_running=1, held=True) as bench:
        fleet = bench.fleet
        generations = [bench.submit(4, 30) for _ in range(8)]
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.allow(1)
        await until(lambda: bench.steps("r0") and bench.steps("r1"))
        mine = [each for each in generations if each.replica == "r0"]
        assert len(mine) == 4

        effect = fleet.draining.predict("r0", Drain(mode="wait"))
        assert (effect.numbers["running"], effect.numbers["moved"], effect.numbers["cancelled"]) == (1, 3, 0)
        fleet.draining.drain("r0", Drain(mode="wait", actor="alice"))
        assert fleet.replica("r0").state == "draining"
        assert fleet.capacity.ready_replicas() == ["r1"]
        assert bench.submit(4, 30).replica == "r1", "nothing new goes there from the same moment on"
        fleet.draining.drain("r0", Drain())  # asking twice is fine

        await bench.step_until("r0", lambda: len(bench.events("move")) == 3)
        assert [event.request for event in bench.events("move")] == [each.id for each in mine[1:]]
        assert {each.replica for each in mine[1:]} == {"r1"}
        waited = [row for row in fleet.rows("r1", "waiting") if row.id in {each.id for each in mine}]
        assert all(row.queue_wait_s is not None for row in waited)
        assert fleet.replica("r0").state == "draining", "one still runs"

        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.release()
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}
        # Those handed over kept their arrival: they ran before what arrived later.
        order = [each for step in bench.steps("r1") for each in step.admitted]
        arrivals = {each.id: each.arrived_s for each in generations}
        ran = [each for each in order if each in arrivals]
        assert ran[1:] == sorted(ran[1:], key=lambda each: arrivals[each])

        await until(lambda: fleet.replica("r0").state == "drained")
        frame = fleet.frame("r0")
        assert frame.status is not None
        assert (frame.rows, frame.status.kv.used, frame.status.running) == ([], 0, 0)
        states = [(event.reason, event.actor) for event in bench.events("replica") if event.replica == "r0"]
        assert states == [("ready", None), ("draining", "alice"), ("drained", None)]


async def test_undrain_brings_it_back_from_draining_and_from_drained() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        fleet = bench.fleet
        running = bench.submit(4, 8)
        replica = str(running.replica)
        runner = bench.launcher.now(replica).runner
        runner.allow(1)
        await until(lambda: running.emitted)
        fleet.draining.drain(replica, Drain(mode="wait"))
        fleet.draining.undrain(replica, actor="bob")
        assert fleet.replica(replica).state == "ready"
        runner.release()
        await finished(running)
        fleet.draining.drain(replica, Drain())
        await until(lambda: fleet.replica(replica).state == "drained")
        fleet.draining.undrain(replica)
        fleet.draining.undrain(replica)  # no more than ready
        bench.launcher.now("r0").runner.release()
        bench.launcher.now("r1").runner.release()
        again = [bench.submit(4, 3) for _ in range(2)]
        assert {each.replica for each in again} == {"r0", "r1"}
        await finished(*again)
        assert "takes requests" not in fleet.draining.predict_undrain(replica).summary[0]


async def test_mode_cancel_cancels_what_runs_and_moves_what_waits() -> None:
    async with running_fleet(replicas=2, max_running=1, held=True) as bench:
        generations = [bench.submit(4, 30) for _ in range(4)]
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.allow(2)
        await until(lambda: all(len(bench.steps(each)) == 2 for each in ("r0", "r1")))
        running, queued = (each for each in generations if each.replica == "r0")
        assert bench.fleet.draining.predict("r0", Drain(mode="cancel")).numbers["cancelled"] == 1
        bench.fleet.draining.drain("r0", Drain(mode="cancel"))
        await bench.step_until("r0", lambda: bench.events("move"))
        for replica in ("r0", "r1"):
            bench.launcher.now(replica).runner.release()
        await finished(*generations)
        assert (running.finish_reason, running.error_code) == ("cancelled", "replica_draining")
        assert (queued.finish_reason, queued.replica) == ("length", "r1")
        await until(lambda: bench.fleet.replica("r0").state == "drained")


async def test_cancel_running_at_a_deadline() -> None:
    async with running_fleet(replicas=2, held=True) as bench:
        generation = bench.submit(4, 50)
        replica = str(generation.replica)
        bench.launcher.now(replica).runner.allow(2)
        await until(lambda: len(generation.emitted) == 2)
        bench.fleet.draining.drain(replica, Drain(mode="wait"))
        bench.launcher.now(replica).runner.release()
        await until(lambda: len(generation.emitted) > 4)
        bench.fleet.draining.cancel_running(replica)
        await finished(generation)
        assert generation.finish_reason in ("cancelled", "length")
        await until(lambda: bench.fleet.replica(replica).state == "drained")


async def test_the_last_ready_replica_is_refused_unless_forced() -> None:
    async with running_fleet(replicas=2) as bench:
        bench.fleet.draining.drain("r0", Drain())
        with pytest.raises(Refusal) as refused:
            bench.fleet.draining.drain("r1", Drain())
        assert (refused.value.problem.status, refused.value.problem.code) == (409, "would_break_min_ready")
        assert bench.fleet.replica("r1").state == "ready"
        bench.fleet.draining.drain("r1", Drain(force=True))
        await until(lambda: bench.fleet.replica("r1").state == "drained")
        held = bench.submit()
        assert [(row.id, row.waiting_reason) for row in bench.fleet.held_rows()] == [(held.id, "draining")]
        assert bench.fleet.draining.predict_undrain("r0").numbers["held"] == 1
        bench.fleet.draining.undrain("r0")
        await finished(held)
        assert (held.finish_reason, held.replica) == ("length", "r0")


async def test_a_forced_drain_of_the_last_holds_its_queue() -> None:
    async with running_fleet(replicas=1, max_running=1, held=True) as bench:
        generations = [bench.submit(4, 5) for _ in range(3)]
        runner = bench.launcher.now("r0").runner
        runner.allow(1)
        await until(lambda: bench.steps("r0"))
        bench.fleet.draining.drain("r0", Drain(force=True))
        runner.release()
        await until(lambda: bench.fleet.replica("r0").state == "drained")
        assert generations[0].finish_reason == "length"
        assert [row.id for row in bench.fleet.held_rows()] == [each.id for each in generations[1:]]
        bench.fleet.draining.undrain("r0")
        await finished(*generations)
        assert [each for step in bench.steps("r0") for each in step.admitted] == [
            each.id for each in generations
        ]


async def test_what_cannot_be_drained_says_why() -> None:
    async with running_fleet(replicas=1, loaded=False) as bench:
        with pytest.raises(Refusal) as starting:
            bench.fleet.draining.drain("r0", Drain())
        assert (starting.value.problem.status, starting.value.problem.code) == (409, "not_ready")
        with pytest.raises(Refusal) as unknown:
            bench.fleet.draining.drain("r9", Drain())
        assert unknown.value.problem.status == 404
        bench.launcher.load_gate.set()
        await bench.ready()
        with pytest.raises(Refusal) as migrate:
            bench.fleet.draining.drain("r0", Drain(mode="migrate"))
        assert (migrate.value.problem.status, migrate.value.problem.code) == (409, "no_other_replica")


async def test_a_drain_survives_the_death_of_its_replica() -> None:
    async with running_fleet(replicas=2) as bench:
        bench.fleet.draining.drain("r0", Drain())
        await until(lambda: bench.fleet.replica("r0").state == "drained")
        bench.launcher.now("r0").kill()
        await until(lambda: bench.fleet.replica("r0").incarnation == 2)
        await until(lambda: bench.fleet.replica("r0").state == "drained")
        assert bench.fleet.capacity.ready_replicas() == ["r1"]
        assert {bench.submit().replica for _ in range(3)} == {"r1"}
        bench.fleet.draining.undrain("r0")
        assert bench.fleet.capacity.ready_replicas() == ["r0", "r1"]


async def test_stopping_ends_replicas_that_still_load_at_once() -> None:
    """They hear nothing while they load, so there is nothing to wait for."""
    async with running_fleet(replicas=2, loaded=False) as bench:
        await until(lambda: len(bench.launcher.lives) == 2)
        await bench.fleet.stop()
        assert [await bench.launcher.now(each).wait() for each in ("r0", "r1")] == [-9, -9]
