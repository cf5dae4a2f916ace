"""The watch stream's bounds: a slow client is reset and in the end let go; it never grows the server or fails
it."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from infer_engine.control import watch as module
from infer_engine.control.context import Context
from infer_engine.control.frames import Detail
from infer_engine.control.outbox import QUEUE_LENGTH
from infer_engine.control.watch import WatchSession
from infer_engine.control.watch_query import Query
from support.watching import Mirror, envelopes
from support.watching import idle_step as step

#: No block maps: a fleet that loads has none, and the snapshot would wait for them.
QUERY = Query(detail=Detail(blocks=False), hz=20.0)


def session_of(context: Context, query: Query = QUERY) -> WatchSession:
    return WatchSession(context, query, clock=asyncio.get_running_loop().time, wall=lambda: 1.0)


async def pull(stream: AsyncGenerator[bytes], mirror: Mirror) -> list[str]:
    """Apply the next message; the tags in it."""
    async with asyncio.timeout(60):
        message = await anext(stream)
    found = envelopes(message)
    for envelope in found:
        mirror.apply(envelope)
    return [str(type(envelope.delta).__struct_config__.tag) for envelope in found]


async def test_the_snapshot_is_framed_and_whole(context: Context) -> None:
    context.fleet.feed.event("traffic", reason="started")
    context.operations.record("cancel", "req-1", "done", actor="", reason="")
    stream = session_of(context).messages()
    tags = await pull(stream, mirror := Mirror())
    assert tags == [
        "snapshot-begin",
        "fleet",
        "frame",
        "frame",
        "held",
        "operation",
        "event",
        "snapshot-end",
    ]
    assert set(mirror.replicas) == {"r0", "r1"}
    await stream.aclose()


async def test_what_happens_during_the_snapshot_comes_once(context: Context) -> None:
    stream = session_of(context).messages()
    await pull(stream, mirror := Mirror())
    context.fleet.feed.event("traffic", reason="started")
    context.fleet.feed.step(step(1))
    while not mirror.steps:
        await pull(stream, mirror)
    assert [event.seq for event in mirror.events] == [1]
    assert [each.step for each in mirror.steps] == [1]
    await stream.aclose()


async def test_a_filter_keeps_others_out(context: Context) -> None:
    query = Query(replicas=frozenset({"r1"}), detail=Detail(blocks=False), hz=20.0)
    stream = session_of(context, query).messages()
    await pull(stream, mirror := Mirror())
    assert set(mirror.replicas) == {"r1"}
    context.fleet.feed.step(step(1, "r0"))
    context.fleet.feed.step(step(2, "r1"))
    while not mirror.steps:
        await pull(stream, mirror)
    assert [each.step for each in mirror.steps] == [2]
    await stream.aclose()


async def test_a_slow_client_is_reset_then_let_go(context: Context) -> None:
    session = session_of(context)
    stream = session.messages()
    await pull(stream, mirror := Mirror())
    for turn in range(module.MOST_RESETS):
        for number in range(5_000):
            context.fleet.feed.step(step(number))
            assert len(session.queue) <= QUEUE_LENGTH
        tags = await pull(stream, mirror)
        assert (tags[0], tags[1], tags[-1]) == ("reset", "snapshot-begin", "snapshot-end")
        assert (len(mirror.resets), mirror.resets[-1].dropped) == (turn + 1, 5_000)
    for number in range(5_000):
        context.fleet.feed.step(step(number))
    assert await pull(stream, mirror) == ["reset"]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert mirror.steps == []


async def test_a_client_that_keeps_up_loses_no_step(context: Context) -> None:
    stream = session_of(context).messages()
    await pull(stream, mirror := Mirror())
    for number in range(4_000):
        context.fleet.feed.step(step(number))
        if number % 1_000 == 999:
            while len(mirror.steps) <= number:
                await pull(stream, mirror)
    assert [each.step for each in mirror.steps] == list(range(4_000))
    assert mirror.resets == []
    await stream.aclose()


async def test_heartbeats_come_and_the_end_comes_at_once(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.0)
    stream = session_of(context).messages()
    await pull(stream, mirror := Mirror())
    assert "heartbeat" in await pull(stream, mirror)
    context.stopping.set()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_closing_lets_go_of_everything(context: Context) -> None:
    fleet = context.fleet
    heard: list[object] = []
    stream = session_of(context).messages()
    await pull(stream, Mirror())
    await stream.aclose()
    unsubscribe = fleet.feed.subscribe(heard.append)
    fleet.feed.step(step(1))
    unsubscribe()
    session = session_of(context)
    assert len(session.queue) == 0
    assert len(heard) == 1
