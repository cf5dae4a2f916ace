"""Watchers that come back: they get what they missed, once and in order, or are told to begin anew."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from random import Random

import pytest
from infer_engine.control import resume as module
from infer_engine.control.context import Context
from infer_engine.control.frames import Detail
from infer_engine.control.resume import Sessions
from infer_engine.control.watch import WatchSession
from infer_engine.control.watch_query import Query
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Refusal
from infer_engine.settings import ServerSettings
from support.watching import Mirror, envelopes, idle_step

QUERY = Query(detail=Detail(blocks=False), hz=20.0)


@pytest.fixture
def sessions(context: Context) -> Generator[Sessions]:
    made = Sessions(
        context.fleet.epoch,
        lambda query, left: WatchSession(
            context, query, clock=asyncio.get_running_loop().time, wall=lambda: 1.0, left=left
        ),
    )
    yield made
    made.close()


async def read(stream: AsyncGenerator[bytes], mirror: Mirror, until_step: int | None = None) -> None:
    async with asyncio.timeout(60):
        while True:
            for envelope in envelopes(await anext(stream)):
                mirror.apply(envelope)
            if until_step is None or (mirror.steps and mirror.steps[-1].step >= until_step):
                return


async def test_what_was_missed_comes_once_and_in_order(context: Context, sessions: Sessions) -> None:
    session = sessions.new(QUERY)
    stream = session.messages()
    await read(stream, mirror := Mirror())
    context.fleet.feed.step(idle_step(1))
    await anext(stream)  # sent, and lost on the way
    await stream.aclose()
    context.fleet.feed.step(idle_step(2))  # while nobody is connected
    found = sessions.find(f"{context.fleet.epoch}:{mirror.seq}", QUERY)
    assert found is not None
    again = found[0].resume(found[1])
    await read(again, mirror, until_step=2)
    assert [step.step for step in mirror.steps] == [1, 2]
    assert mirror.complete
    await again.aclose()


async def test_a_connection_that_is_not_yet_known_to_be_dead_loses_the_session(
    context: Context, sessions: Sessions
) -> None:
    old = sessions.new(QUERY).messages()
    await read(old, mirror := Mirror())
    found = sessions.find(f"{context.fleet.epoch}:{mirror.seq}", QUERY)
    assert found is not None
    new = found[0].resume(found[1])
    await read(new, mirror)
    with pytest.raises(StopAsyncIteration):
        await anext(old)
    context.fleet.feed.step(idle_step(1))
    await read(new, mirror, until_step=1)
    await new.aclose()


async def test_another_filter_is_a_fresh_snapshot(context: Context, sessions: Sessions) -> None:
    stream = sessions.new(QUERY).messages()
    await read(stream, mirror := Mirror())
    other = Query(replicas=frozenset({"r1"}), detail=Detail(blocks=False), hz=20.0)
    assert sessions.find(f"{context.fleet.epoch}:{mirror.seq}", other) is None
    await stream.aclose()


@pytest.mark.parametrize(
    ("since", "status", "code"),
    [("other:7", 410, "too_old"), ("{epoch}:999999", 410, "too_old"), ("seven", 400, "invalid_field")],
)
async def test_what_cannot_be_resumed_says_why(
    context: Context, sessions: Sessions, since: str, status: int, code: str
) -> None:
    with pytest.raises(Refusal) as refused:
        sessions.find(since.format(epoch=context.fleet.epoch), QUERY)
    assert (refused.value.problem.status, refused.value.problem.code) == (status, code)


async def test_too_long_ago_is_gone(context: Context, sessions: Sessions) -> None:
    stream = sessions.new(QUERY).messages()
    await read(stream, mirror := Mirror())
    since = mirror.seq
    for number in range(3_000):
        context.fleet.feed.step(idle_step(number))
        if number % 500 == 499:
            await read(stream, mirror, until_step=number)
    with pytest.raises(Refusal) as refused:
        sessions.find(f"{context.fleet.epoch}:{since}", QUERY)
    assert refused.value.problem.status == 410
    await stream.aclose()


async def test_only_so_many_are_kept_for_their_clients(context: Context, sessions: Sessions) -> None:
    ids: list[str] = []
    for _ in range(module.MOST_KEPT + 1):
        stream = sessions.new(QUERY).messages()
        await read(stream, mirror := Mirror())
        await stream.aclose()
        ids.append(f"{context.fleet.epoch}:{mirror.seq}")
    with pytest.raises(Refusal):
        sessions.find(ids[0], QUERY)
    assert sessions.find(ids[1], QUERY) is not None


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_cut_whenever_the_state_is_that_of_a_fresh_snapshot(
    context: Context, sessions: Sessions, seed: int
) -> None:
    random = Random(seed)
    stream = sessions.new(QUERY).messages()
    await read(stream, mirror := Mirror())
    step = 0
    for _ in range(40):
        match random.randrange(4):
            case 0:
                step += 1
                context.fleet.feed.step(idle_step(step))
            case 1:
                context.fleet.feed.event("traffic", reason="started")
            case 2:
                context.operations.record("cancel", f"req-{step}", "done", actor="", reason="")
            case _:
                if random.random() < 0.5:
                    await anext(stream)  # lost
                await stream.aclose()
                found = sessions.find(f"{context.fleet.epoch}:{mirror.seq}", QUERY)
                assert found is not None
                stream = found[0].resume(found[1])
                await read(stream, mirror)
    context.fleet.feed.step(idle_step(step + 1))
    await read(stream, mirror, until_step=step + 1)
    assert [each.step for each in mirror.steps] == list(range(1, step + 2))
    fresh_stream = sessions.new(QUERY).messages()
    await read(fresh_stream, fresh := Mirror())
    assert mirror.operations == fresh.operations
    assert mirror.events == fresh.events
    assert mirror.replicas.keys() == fresh.replicas.keys()
    assert mirror.held == fresh.held
    await fresh_stream.aclose()
    await stream.aclose()


async def test_of_a_thousand_replicas_one_pays_for_what_one_looks_at(
    context: Context, directory: Path
) -> None:
    settings = ServerSettings(replicas=1_000, simulate="70b@4×h100")
    fleet = Fleet(settings, run_dir=directory / "thousand")
    context.fleet = fleet

    async def bytes_of(query: Query) -> int:
        session = WatchSession(context, query, clock=asyncio.get_running_loop().time, wall=lambda: 1.0)
        stream = session.messages()
        first = await anext(stream)
        for number in range(1_000):
            fleet.feed.step(idle_step(1, f"r{number}"))
        then = await anext(stream)
        await stream.aclose()
        return len(first) + len(then)

    one = await bytes_of(Query(replicas=frozenset({"r7"}), detail=Detail(blocks=False), hz=20.0))
    everything = await bytes_of(Query(detail=Detail(blocks=False), hz=20.0))
    assert one < 8_192
    assert everything > 100 * one
