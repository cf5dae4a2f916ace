"""A request's deadline holds wherever it is: on a replica, in its queue, or held because there is none."""

from dataclasses import replace

from infer_engine.fleet.generation import Generation
from support.fleets import Bench, running_fleet, spec, until


def ask(bench: Bench, deadline_s: float, max_tokens: int = 4) -> Generation:
    return bench.fleet.submit(replace(spec(4, max_tokens), deadline_s=deadline_s))


async def test_it_ends_on_its_replica_running_or_waiting() -> None:
    async with running_fleet(replicas=1, held=True, max_running=1) as bench:
        running, waiting, patient = ask(bench, 5.0, 40), ask(bench, 5.0), ask(bench, 500.0)
        await bench.step_until("r0", lambda: running.emitted)
        bench.launcher.now("r0").loop._clock = _ahead(bench, 10.0)  # pyright: ignore
        await bench.step_until("r0", lambda: running.finished and waiting.finished)
        assert (running.finish_reason, running.error_code) == ("error", "deadline_exceeded")
        assert (waiting.finish_reason, waiting.error_code) == ("error", "deadline_exceeded")
        assert len(running.emitted) >= 1
        bench.launcher.now("r0").runner.release()
        await until(lambda: patient.finished)
        assert patient.finish_reason == "length"


def _ahead(bench: Bench, seconds_s: float):
    loop = bench.launcher.now("r0").loop
    assert loop is not None
    clock = loop._clock  # pyright: ignore[reportPrivateUsage]
    return lambda: clock() + seconds_s


async def test_it_ends_while_no_replica_is_there() -> None:
    async with running_fleet(replicas=1, loaded=False) as bench:
        overdue, patient = ask(bench, 30.0), ask(bench, 500.0)
        bench.ahead_s = 31.0
        await until(lambda: overdue.finished)
        assert overdue.error_code == "deadline_exceeded"
        assert not patient.finished
        bench.launcher.load_gate.set()
        await until(lambda: patient.finished)


async def test_what_is_left_goes_with_it_to_its_replica() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        bench.ahead_s = 100.0
        generation = ask(bench, 50.0)
        await bench.step_until("r0", lambda: generation.emitted)
        loop = bench.launcher.now("r0").loop
        assert loop is not None
        request = loop.scheduler.get(generation.id)
        assert request is not None
        assert request.deadline_s is not None
        assert 49.0 < request.deadline_s - request.arrival_s <= 50.0
