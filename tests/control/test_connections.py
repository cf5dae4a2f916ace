"""Clients that leave, stall, never end or send garbage: each is cut in time, none is our error."""

import asyncio

import pytest
from infer_engine.control.context import Context
from infer_engine.control.outbox import QUEUE_LENGTH
from infer_engine.control.reads import Reads
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Reset
from starlette.requests import Request
from support.served import Served
from support.watching import Mirror, envelopes
from support.watching import idle_step as step

HALF_A_COMMAND = (
    b"POST /control/v1/headroom HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
)


def unchunked(body: bytes) -> bytes:
    """Whole chunks of a chunked HTTP body, without their frames."""
    parts: list[bytes] = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if len(rest) < length:
            break
        parts.append(rest[:length])
        body = rest[length + 2 :]
    return b"".join(parts)


async def test_a_body_that_never_ends_is_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infer_engine.control.guard.BODY_DEADLINE_S", 0.1)
    reader, writer = await served.connect()
    writer.write(HALF_A_COMMAND)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
    assert b" 408 " in head
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_leaves_in_its_body_is_no_error(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await served.connect()
    writer.write(HALF_A_COMMAND)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await served.answers()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_head_that_never_ends_is_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infer_engine.listener.HEAD_DEADLINE_S", 0.1)
    reader, writer = await served.connect()
    writer.write(b"GET /control/v1/state HTTP/1.1\r\nHost: loc")
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await writer.wait_closed()


async def test_garbage_is_answered_and_forgotten(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    for garbage in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/x\r\n\r\n",
        b"\x16\x03\x01" + b"A" * 200 + b"\r\n\r\n",
    ):
        reader, writer = await served.connect()
        writer.write(garbage)
        assert b"400" in await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
    assert await served.answers()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_client_that_stops_reading_is_reset(context: Context, served: Served) -> None:
    reader, writer = await served.open("hz=20&detail=steps")
    for number in range(20_000):
        context.fleet.feed.step(step(number))
        if number % 200 == 0:
            await asyncio.sleep(0.005)
    received = b""
    async with asyncio.timeout(60):
        while b"event: snapshot-end" not in received.partition(b"event: reset")[2]:
            received += await reader.read(65_536)
    found = envelopes(unchunked(received))
    mirror = Mirror()
    for envelope in found:
        mirror.apply(envelope)
    reset = next(each.delta for each in found if isinstance(each.delta, Reset))
    assert reset.dropped > QUEUE_LENGTH
    writer.close()
    await writer.wait_closed()
    await served.until_connections(0)


async def test_a_client_that_never_reads_is_cut(
    context: Context, served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infer_engine.control.sse.SEND_TIMEOUT_S", 0.2)
    _, writer = await served.open("hz=20&detail=steps")
    await served.until_connections(1)
    async with asyncio.timeout(60):
        while served.listener.connections:
            for number in range(500):
                context.fleet.feed.step(step(number))
            await asyncio.sleep(0.02)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    writer.transport.abort()


async def test_a_client_that_leaves_is_forgotten(
    context: Context, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        _, writer = await served.open("hz=20&detail=steps,roster")
        writer.close()
        await writer.wait_closed()
    await served.until_connections(0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_too_many_watchers_are_refused(
    context: Context, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infer_engine.control.reads.MAX_WATCHERS", 2)
    writers = [(await served.open("detail=roster"))[1] for _ in range(2)]
    reader, writer = await asyncio.open_unix_connection(str(served.path))
    writer.write(b"GET /control/v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert b" 503 " in head
    assert b"retry-after: 5" in head
    for each in [writer, *writers]:
        each.close()
        await each.wait_closed()


async def test_a_burst_of_streams_does_not_pass_the_limit(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are accepted or refused before the first of them sends a byte."""
    monkeypatch.setattr("infer_engine.control.reads.MAX_WATCHERS", 3)
    reads = Reads(context)
    request = Request({"type": "http", "query_string": b"", "headers": [], "path_params": {}})
    streams = [await reads.watch(request) for _ in range(3)]
    with pytest.raises(Refusal) as refused:
        await reads.watch(request)
    assert refused.value.problem.code == "too_many_watchers"

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_message: object) -> None:
        return

    await streams[0]({"type": "http"}, receive, send)
    streams.append(await reads.watch(request))
    for stream in streams[1:]:
        await stream({"type": "http"}, receive, send)


async def test_what_is_no_request_gets_a_problem(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"hello\r\n\r\n")
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert b'"code":"malformed_request"' in body
    assert await served.answers()
