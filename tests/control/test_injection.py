"""Test traffic on a simulated fleet: what a dry run tells is what comes, loops are open or closed, a
recording is played as it was."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from infer_engine.control.operations import Operations
from infer_engine.control.traffic import Injector
from infer_engine.fleet.generation import Refusal
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Inject, TraceRequest, TrafficStatus
from support.simulated_fleet import EPOCH_AT, SimulatedBench, run, spec

T = TypeVar("T")
Drill = Callable[[SimulatedBench, Injector], Awaitable[T]]


@asynccontextmanager
async def injecting(bench: SimulatedBench, tokenizer: Tokenizer) -> AsyncGenerator[Injector]:
    def wall() -> float:
        return EPOCH_AT + bench.fleet.now()

    operations = Operations(wall, lambda _: None)
    try:
        yield Injector(bench.fleet, tokenizer, operations, 131_072, wall)
    finally:
        await operations.close()


@pytest.fixture
def drill(tokenizer: Tokenizer, tmp_path: Path) -> Callable[..., Any]:
    def drilled(work: Drill[T], **settings: Any) -> T:
        async def main(bench: SimulatedBench) -> T:
            async with injecting(bench, tokenizer) as injector:
                return await work(bench, injector)

        return run(main, tmp_path / "run", **{"replicas": 2, "token_budget": 2_048, **settings})

    return drilled


async def over(injector: Injector, within_s: float = 900.0) -> TrafficStatus:
    for _ in range(int(within_s * 4)):
        if not injector.status().running:
            return injector.status()
        await asyncio.sleep(0.25)  # simulated seconds
    raise AssertionError(f"it goes on: {injector.status()}")


@pytest.mark.parametrize(
    "command",
    [
        Inject(profile="chat", rate_per_s=4.0, duration_s=60.0, seed=3),
        Inject(profile="long-context", rate_per_s=1.0, duration_s=60.0, seed=3),
        Inject(profile="mixed", concurrency=8, duration_s=40.0, seed=3),
    ],
    ids=lambda command: command.profile,
)
def test_a_dry_run_tells_the_load(command: Inject, drill: Callable[..., Any]) -> None:
    async def work(bench: SimulatedBench, injector: Injector) -> None:
        told = injector.predict(command).numbers
        injector.start(command)
        in_flight: list[int] = []
        kv: list[int] = []
        await asyncio.sleep(8.0)
        while bench.fleet.now() < command.duration_s:  # type: ignore[operator]
            status = bench.fleet.status()
            in_flight.append(sum(each.running or 0 for each in status.replicas))
            kv.append(sum(each.kv.used or 0 for each in status.replicas))
            await asyncio.sleep(0.5)
        status = await over(injector)
        assert (status.finished, status.failed) == (status.sent, 0)
        assert told["requests"] == pytest.approx(status.sent, rel=0.2)
        assert told["in_flight"] == pytest.approx(sum(in_flight) / len(in_flight), rel=0.3)
        assert told["kv_blocks"] == pytest.approx(sum(kv) / len(kv), rel=0.3)

    drill(work)


def test_what_is_done_is_counted_of_what_is_planned(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def work(bench: SimulatedBench) -> None:
        operations = Operations(lambda: EPOCH_AT + bench.fleet.now(), lambda _: None)
        try:
            injector = Injector(bench.fleet, tokenizer, operations, 131_072)
            operation = injector.start(Inject(profile="chat", rate_per_s=5.0, duration_s=20.0))
            await asyncio.sleep(8.0)
            under_way = operations.get(operation.id)
            assert under_way.total == 100
            assert 0 < (under_way.done or 0) <= injector.status().sent < 100
            status = await over(injector)
            ended = operations.get(operation.id)
            assert (ended.done, ended.total) == (status.finished, status.sent + status.not_sent)
            closed = injector.start(Inject(profile="chat", concurrency=3, duration_s=8.0))
            await asyncio.sleep(4.0)
            assert operations.get(closed.id).total is None
        finally:
            await operations.close()

    run(work, tmp_path / "run", replicas=2, token_budget=2_048)


def test_a_slow_simulation_ends_later_than_its_speed_says(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Half of the speed that is asked for: what is left takes twice as long."""

    async def work(bench: SimulatedBench) -> None:
        began_s = bench.fleet.now()

        def wall() -> float:
            return EPOCH_AT + 2.0 * (bench.fleet.now() - began_s) / bench.fleet.pace

        operations = Operations(wall, lambda _: None)
        try:
            injector = Injector(bench.fleet, tokenizer, operations, 131_072, wall)
            operation = injector.start(Inject(profile="chat", rate_per_s=1.0, duration_s=60.0))
            assert injector.status().ends_at == EPOCH_AT + 60.0 / bench.fleet.pace
            await asyncio.sleep(30.0)
            ends_at = injector.status().ends_at
            assert ends_at is not None
            assert abs(ends_at - (EPOCH_AT + 120.0 / bench.fleet.pace)) <= 1.0
            assert operations.get(operation.id).deadline_at == ends_at
        finally:
            await operations.close()

    run(work, tmp_path / "run", replicas=2, token_budget=2_048)


def test_a_closed_loop_keeps_so_many_in_flight(drill: Callable[..., Any]) -> None:
    async def work(_bench: SimulatedBench, injector: Injector) -> None:
        injector.start(Inject(profile="chat", concurrency=7, duration_s=8.0))
        seen: set[int] = set()
        for _ in range(14):
            await asyncio.sleep(0.5)
            seen.add(injector.status().in_flight)
        assert max(seen) == 7
        assert min(seen) >= 6, "who ended is replaced at once"
        status = await over(injector)
        assert status.sent > 7
        assert (status.concurrency, status.rate_per_s, status.not_sent) == (7, None, 0)

    drill(work)


def test_a_trace_is_played_to_the_second(drill: Callable[..., Any]) -> None:
    trace = [
        TraceRequest(arrival_s=1.0, prompt_tokens=300, output_tokens=9),
        TraceRequest(arrival_s=1.0, prompt_tokens=100_000, output_tokens=3),
        TraceRequest(arrival_s=12.5, prompt_tokens=40, output_tokens=2, tier="batch"),
    ]

    async def work(bench: SimulatedBench, injector: Injector) -> None:
        command = Inject(profile="trace", trace=trace)
        numbers = injector.predict(command).numbers
        assert numbers["requests"] == 3
        assert numbers["prompt_tokens"] == pytest.approx(100_340)
        began_s = bench.fleet.now()
        injector.start(command)
        await asyncio.sleep(1.2)
        assert injector.status().sent == 2
        await asyncio.sleep(bench.fleet.now() - began_s + 10.0)
        status = await over(injector)
        assert (status.sent, status.finished, status.trace_requests) == (3, 3, 3)
        ended = [event for event in bench.events("finish") if event.synthetic]
        assert sorted(event.tokens or 0 for event in ended) == [2, 3, 9], "answers are as long as recorded"
        assert {event.tier for event in ended} == {"interactive", "batch"}

    drill(work)


def test_what_could_never_be_answered_is_not_taken(drill: Callable[..., Any]) -> None:
    async def work(_bench: SimulatedBench, injector: Injector) -> None:
        trace = [TraceRequest(arrival_s=0.0, prompt_tokens=200_000, output_tokens=3)]
        with pytest.raises(Refusal) as refused:
            injector.predict(Inject(profile="trace", trace=trace))
        assert refused.value.problem.field == "trace[0]"
        with pytest.raises(Refusal) as refused:
            injector.predict(Inject(concurrency=1_000))
        assert refused.value.problem.field == "concurrency"

    drill(work)


def test_effect_on_users_is_told_and_a_full_pool_ends_it(drill: Callable[..., Any]) -> None:
    async def work(bench: SimulatedBench, injector: Injector) -> None:
        users = [bench.fleet.submit(spec(500, 20, first=1_000 * each)) for each in range(6)]
        await bench.finished(*users)
        injector.start(Inject(profile="chat", rate_per_s=4.0, duration_s=60.0))
        before = injector.status().before
        assert before is not None
        assert before.requests == 6
        await asyncio.sleep(10.0)
        status = injector.status()
        assert status.users is not None
        assert status.test is not None
        assert (status.users.requests, status.test.requests > 10) == (0, True)
        assert status.before == before
        # Users alone fill the pool: the test traffic has to go, whoever's the blocks are.
        room = bench.fleet.replica("r0").kv.total or 0
        for each in range(2):
            bench.fleet.submit(spec(int(room * 16 * 0.93), 2_000, first=each * 3_000_000))
        status = await over(injector, 40.0)
        assert status.stopped_because is not None
        assert "of the KV is used" in status.stopped_because
        told = injector.predict(Inject(profile="chat")).warnings
        assert told[0].startswith("it would end at once: 9")
        assert "of the KV is used" in told[0]

    drill(work, kv_blocks=2_000, max_waiting_tokens=10_000_000)
