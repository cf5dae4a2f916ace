"""What a connection may do: how many there may be, what may wait behind a request, how its end is seen."""

import asyncio
import json
import socket

import pytest
import pytest_asyncio
from infer_engine.connections import MOST_REFUSALS, Connections
from infer_engine.listener import MAX_PIPELINED_BYTES
from infer_engine.model.tokenizer import Tokenizer
from support.gateway import TEXT, Gateway, post_head, serve_gateway, until
from support.scripted_fleet import Cancelled, say

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASK = {"model": "tiny", "prompt": "Hi", "stream": True}


async def test_the_total_and_an_address_are_counted_apart() -> None:
    limits = Connections(most=3, per_client=2)
    assert [limits.enter("a"), limits.enter("a"), limits.enter("a")] == ["taken", "taken", "refused"]
    assert [limits.enter("b"), limits.enter("c"), limits.enter(None)] == ["taken", "refused", "refused"]
    assert (limits.open, limits.turned_away) == (3, 3)
    limits.leave("a", "refused")
    limits.leave("a", "taken")
    assert [limits.enter("c"), limits.enter("c")] == ["taken", "refused"]
    for address in ("a", "b", "c"):
        limits.leave(address, "taken")
    assert limits.open == 0


async def test_even_refusals_are_bounded() -> None:
    limits = Connections(most=1)
    limits.enter("a")
    verdicts = [limits.enter("a") for _ in range(MOST_REFUSALS + 2)]
    assert verdicts == ["refused"] * MOST_REFUSALS + ["cut"] * 2
    limits.leave("a", "refused")
    assert limits.enter("a") == "refused"


class TestLimits:
    @pytest_asyncio.fixture(loop_scope="session")
    async def small(self, tokenizer: Tokenizer) -> object:
        limits = Connections(most=3, per_client=2)
        async with serve_gateway(tokenizer, context_length=2048, limits=limits) as gateway:
            yield gateway

    async def test_who_is_beyond_them_is_told_and_others_go_on(self, small: Gateway) -> None:
        open_ = [await small.raw(TEXT, ASK) for _ in range(2)]
        generations = [await small.generation(index) for index in range(2)]
        reader, writer = await small.raw(TEXT, ASK)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        for header in (b"retry-after: 1", b"x-request-dropped-reason: too_many_connections"):
            assert header in head.lower()
        assert b'"code":"too_many_connections"' in body
        assert len(small.fleet.generations) == 2
        for generation in generations:
            say(generation, small.ids("Hi"), "stop")
        for reader, writer in open_:
            await reader.readuntil(b"[DONE]\n\n")
            writer.close()
        await until(lambda: small.listener.limits.open == 0, "the connections gone")
        assert (await small.client.get("/livez")).status_code == 200


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_has_sent_another_request_and_leaves(
    gateway: Gateway, how: str, stream: bool
) -> None:
    """The second request waits unread behind the first; the departure must not."""
    _, writer = await gateway.raw(TEXT, {**ASK, "stream": stream})
    generation = await gateway.generation()
    writer.write(post_head(TEXT, 2000) + b"x" * 2000)
    await writer.drain()
    await until(lambda: _bytes_waiting(gateway) > 2000, "the second request in the server")
    if how == "FIN":
        writer.close()
    else:
        writer.transport.abort()
    await until(lambda: gateway.fleet.cancelled, "the cancellation")
    assert gateway.fleet.cancelled == [Cancelled(generation.id, "cancelled", "client_disconnected")]


def _bytes_waiting(gateway: Gateway) -> int:
    connections = gateway.listener._server.server_state.connections
    return max(len(each.conn.trailing_data[0]) for each in connections)


async def test_a_second_request_is_answered_after_the_first(gateway: Gateway) -> None:
    reader, writer = await gateway.raw(TEXT, ASK)
    first = await gateway.generation()
    body = b'{"model":"tiny","prompt":"Ho","stream":true}'
    writer.write(post_head(TEXT, len(body)) + body)
    say(first, gateway.ids("one"), "stop")
    await reader.readuntil(b"[DONE]\n\n")
    say(await gateway.generation(1), gateway.ids("two"), "stop")
    assert b'"text":"two"' in await reader.readuntil(b"[DONE]\n\n")
    writer.close()


async def test_what_waits_behind_a_request_is_bounded(gateway: Gateway) -> None:
    _, writer = await gateway.raw(TEXT, ASK)
    generation = await gateway.generation()
    writer.write(post_head(TEXT, 10_000_000) + b"x" * (MAX_PIPELINED_BYTES + 1))
    await until(lambda: gateway.fleet.cancelled, "the cancellation")
    assert gateway.fleet.cancelled[0].id == generation.id
    writer.close()


async def test_a_client_that_reads_nothing_and_closes_its_side(gateway: Gateway) -> None:
    """Bytes wait to be sent, so closing in turn would wait as well: for a reader who is not there."""
    _, writer = await gateway.raw(TEXT, ASK, 4096)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    generation = await gateway.generation()
    flood = gateway.ids(" the") * 4_096
    connections = gateway.listener._server.server_state.connections

    def is_stuck() -> bool:
        say(generation, flood)
        return any(each.flow.write_paused for each in connections)

    await until(is_stuck, "a full buffer")
    writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
    await until(lambda: gateway.fleet.cancelled, "the cancellation", 5)
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000],
)
async def test_what_is_no_request_gets_an_error_in_openais_shape(gateway: Gateway, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(sent)
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    assert json.loads(body)["error"]["code"] == "malformed_request"
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_garbage_behind_a_request_is_answered_after_its_answer(
    gateway: Gateway,
) -> None:
    reader, writer = await gateway.raw(TEXT, ASK)
    generation = await gateway.generation()
    say(generation, gateway.ids("a"))
    await asyncio.wait_for(reader.readuntil(b"data: "), 60)
    writer.write(b"hello\r\n\r\n")
    say(generation, gateway.ids("b"), "stop")
    rest = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert b"[DONE]" in rest
    assert rest.count(b"HTTP/1.1 400 ") == 1
    assert rest.index(b"[DONE]") < rest.index(b"HTTP/1.1 400 ")
