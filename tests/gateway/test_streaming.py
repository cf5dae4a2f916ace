"""What travels over the wire, byte for byte, and what happens when the client stops listening."""

import asyncio
import json
from typing import Any

import pytest
from infer_engine.gateway.settings import GatewaySettings
from support.gateway import CHAT, TEXT, Gateway, post_head, until
from support.scripted_fleet import Cancelled, say

pytestmark = pytest.mark.asyncio(loop_scope="session")

STREAM_HEAD = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "hi", "max_tokens": 50, **fields}


def documents(body: str) -> list[Any]:
    """The data of each SSE message, comments left out; checks the framing."""
    assert body.endswith("\n\n")
    messages = [message for message in body[:-2].split("\n\n") if not message.startswith(":")]
    assert all(message.startswith("data: ") and "\n" not in message for message in messages)
    return [message[6:] if message == "data: [DONE]" else json.loads(message[6:]) for message in messages]


async def test_chat_stream_from_first_frame_to_done(gateway: Gateway) -> None:
    asked = asyncio.create_task(gateway.post(CHAT, chat(stream=True, stream_options={"include_usage": True})))
    generation = await gateway.generation()
    say(generation, gateway.ids("Hello"))
    say(generation, gateway.ids(" all"), "length")
    response = await asked
    assert response.status_code == 200
    assert {name: response.headers[name] for name in STREAM_HEAD} == STREAM_HEAD
    assert response.headers["x-request-id"] == generation.id
    *chunks, last, done = documents(response.text)
    assert done == "[DONE]"
    head = {"id": f"chatcmpl-{generation.id}", "created": chunks[0]["created"], "model": "tiny"}
    head["object"] = "chat.completion.chunk"
    for chunk in chunks:
        assert chunk == {**head, "choices": chunk["choices"], "usage": None}
        (choice,) = chunk["choices"]
        assert choice == {
            "index": 0,
            "logprobs": None,
            "delta": choice["delta"],
            "finish_reason": choice["finish_reason"],
        }
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "Hello all"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + [
        "length"
    ]
    prompt, generated = len(generation.spec.prompt), len(generation.emitted)
    usage = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
    assert last == {**head, "choices": [], "usage": usage}
    assert gateway.fleet.cancelled == []


async def test_completion_stream_without_usage(gateway: Gateway) -> None:
    asked = asyncio.create_task(gateway.post(TEXT, text(stream=True)))
    generation = await gateway.generation()
    assert generation.spec.prompt == tuple(gateway.ids("hi"))
    say(generation, gateway.ids("out"), "stop")
    *chunks, done = documents((await asked).text)
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert all("usage" not in chunk for chunk in chunks)
    assert [chunk["choices"][0] for chunk in chunks] == [
        {"index": 0, "text": "out", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"},
    ]


async def test_a_character_is_never_split(gateway: Gateway) -> None:
    """Each byte of these is a token of its own; a frame holds whole characters only."""
    words = "é→😀!"
    reader, writer = await gateway.raw(CHAT, chat(stream=True))
    generation = await gateway.generation()
    tokens = gateway.ids(words)
    assert len(tokens) == len(words.encode())
    for count, token in enumerate(tokens, 1):
        say(generation, [token])
        await until(lambda count=count: _cursor_passed(generation, count), "the token being read")
    say(generation, [], "stop")
    body = await reader.readuntil(b"[DONE]\n\n")
    writer.close()
    contents = [
        document["choices"][0]["delta"]["content"]
        for document in map(
            json.loads, (line[6:] for line in body.splitlines() if line.startswith(b"data: {"))
        )
        if document["choices"][0]["delta"].get("content")
    ]
    assert contents == list(words)


def _cursor_passed(generation: Any, count: int) -> bool:
    # The gateway waits for the next token again: it has read the ones before.
    return bool(generation._waiters) and len(generation.emitted) == count


async def test_an_unfinished_character_at_the_end_shows_as_replacement(gateway: Gateway) -> None:
    asked = asyncio.create_task(gateway.post(TEXT, text()))
    say(await gateway.generation(), gateway.ids("a😀")[:-1], "length")
    assert (await asked).json()["choices"][0]["text"] == "a\ufffd"


async def test_an_unfinished_character_at_the_end_can_complete_a_stop_string(gateway: Gateway) -> None:
    asked = asyncio.create_task(gateway.post(TEXT, text(stop="a\ufffd")))
    say(await gateway.generation(), gateway.ids("one a😀")[:-1], "length")
    choice = (await asked).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("one ", "stop")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_string_across_tokens_ends_the_answer_and_the_generation(
    gateway: Gateway, stream: bool
) -> None:
    body = chat(stream=stream, stop=["END"], stream_options={"include_usage": True} if stream else None)
    asked = asyncio.create_task(gateway.post(CHAT, body))
    generation = await gateway.generation()
    say(generation, gateway.ids("one EN"))
    say(generation, gateway.ids("D two"))
    response = await asked
    if stream:
        chunks = documents(response.text)[:-1]
        answer = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
        finish, usage = chunks[-2]["choices"][0]["finish_reason"], chunks[-1]["usage"]
    else:
        choice, usage = response.json()["choices"][0], response.json()["usage"]
        answer, finish = choice["message"]["content"], choice["finish_reason"]
    assert (answer, finish) == ("one ", "stop")
    assert (
        usage["completion_tokens"] == len(gateway.ids("one EN")) + 1
    )  # what came after the stop does not count
    assert gateway.fleet.cancelled == [Cancelled(generation.id, "stop", None)]


async def test_usage_can_be_told_all_the_time(gateway: Gateway) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    reader, writer = await gateway.raw(TEXT, text(stream=True, stream_options=options))
    generation = await gateway.generation()
    said = b""
    for count, word in enumerate(("a", "b"), 1):
        say(generation, gateway.ids(word))
        said += await reader.readuntil(b'"completion_tokens":%d' % count)
    say(generation, [], "stop")
    said += await reader.readuntil(b"[DONE]\n\n")
    writer.close()
    lines = [line[6:] for line in said.splitlines() if line.startswith(b"data: {")]
    prompt_tokens = len(generation.spec.prompt)
    told = [json.loads(line)["usage"] for line in lines]
    assert [(each["prompt_tokens"], each["completion_tokens"]) for each in told] == [
        (prompt_tokens, 1),
        (prompt_tokens, 2),
        (prompt_tokens, 2),
        (prompt_tokens, 2),
    ]


async def test_half_a_stop_string_at_the_end_is_text(gateway: Gateway) -> None:
    asked = asyncio.create_task(gateway.post(TEXT, text(stop="END", stream=True)))
    say(await gateway.generation(), gateway.ids("one EN"), "length")
    chunks = documents((await asked).text)[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "one EN"


async def test_an_error_in_mid_stream_is_one_frame_and_no_done(gateway: Gateway) -> None:
    reader, writer = await gateway.raw(CHAT, chat(stream=True))
    generation = await gateway.generation()
    say(generation, gateway.ids("Hello"))
    await reader.readuntil(b'"content":"Hello"')
    say(
        generation,
        [],
        "cancelled",
        error="an operator cancelled the request",
        error_code="cancelled_by_operator",
    )
    rest = await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    assert b"[DONE]" not in rest
    (frame,) = [json.loads(line[6:]) for line in rest.split(b"\r\n") if line.startswith(b"data: ")]
    assert frame == {
        "error": {
            "message": "an operator cancelled the request",
            "type": "server_error",
            "param": None,
            "code": "cancelled_by_operator",
        }
    }


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("finish", "code", "status", "retry"),
    [
        ("error", "kv_exhausted", 400, "false"),
        ("error", "never_fits", 400, "false"),
        ("error", "queue_full", 429, None),
        ("cancelled", "cancelled_by_operator", 503, "false"),
        ("cancelled", "replica_draining", 503, None),
        ("error", "replica_lost", 503, None),
        ("error", "something_new", 500, "false"),
    ],
)
async def test_an_error_before_the_first_byte_is_a_real_status(
    gateway: Gateway, stream: bool, finish: str, code: str, status: int, retry: str | None
) -> None:
    asked = asyncio.create_task(gateway.post(CHAT, chat(stream=stream)))
    say(await gateway.generation(), [], finish, error="why", error_code=code)
    response = await asked
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["message"] == "why"
    assert response.headers["x-request-id"] == "req-0"
    # A person decided, or it would fail again: official clients must not send it again by themselves.
    assert response.headers.get("x-should-retry") == retry
    assert ("retry-after" in response.headers) == (retry is None)


class TestHeartbeats:
    @pytest.fixture
    def bounds(self) -> GatewaySettings:
        return GatewaySettings(patience_s=0.02, ping_s=0.03)

    async def test_a_queued_stream_is_open_and_pings(self, bounded_gateway: Gateway) -> None:
        reader, writer = await bounded_gateway.raw(CHAT, chat(stream=True))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        for _ in range(3):
            await reader.readuntil(b": ping\n\n")
        generation = await bounded_gateway.generation()
        say(generation, bounded_gateway.ids("Hi"), "stop")
        rest = await reader.readuntil(b"[DONE]\n\n")
        assert rest.index(b'"role":"assistant"') < rest.index(b'"content":"Hi"')
        writer.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["queued", "after the first token"])
@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_a_client_that_leaves_cancels_its_request(
    gateway: Gateway, stream: bool, when: str, how: str
) -> None:
    others = gateway.listener.connections
    reader, writer = await gateway.raw(CHAT, chat(stream=stream))
    generation = await gateway.generation()
    if when == "after the first token":
        say(generation, gateway.ids("Hi"))
        if stream:
            await reader.readuntil(b'"content":"Hi"')
    if how == "FIN":
        writer.close()
    else:
        writer.transport.abort()
    await until(lambda: gateway.fleet.cancelled, "the cancellation")
    assert gateway.fleet.cancelled == [Cancelled(generation.id, "cancelled", "client_disconnected")]
    await until(lambda: gateway.listener.connections <= others, "the connection gone")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_after_a_body_of_many_pieces(gateway: Gateway, stream: bool) -> None:
    """The server pauses reading while such a body comes in; a pause that stayed would hide the departure."""
    _, writer = await gateway.raw(CHAT, chat(stream=stream, metadata="x" * 1_000_000))
    await gateway.generation()
    writer.close()
    await until(lambda: gateway.fleet.cancelled, "the cancellation")


async def test_a_client_that_leaves_while_its_body_is_on_the_way(gateway: Gateway) -> None:
    others = gateway.listener.connections
    _, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(post_head(CHAT, 1000) + b"{")
    await until(lambda: gateway.listener.connections > others, "the connection")
    writer.close()
    await until(lambda: gateway.listener.connections <= others, "the connection gone")
    assert gateway.fleet.generations == []


class TestSlowReaders:
    @pytest.fixture
    def bounds(self) -> GatewaySettings:
        return GatewaySettings(send_timeout_s=0.1)

    async def test_a_client_that_takes_no_bytes_is_cut(self, bounded_gateway: Gateway) -> None:
        _, writer = await bounded_gateway.raw(TEXT, text(stream=True), receive_buffer=4096)
        writer.transport.pause_reading()
        generation = await bounded_gateway.generation()
        flood = bounded_gateway.ids(" the") * 16_384

        def more() -> bool:
            # More than all buffers between the two hold; a wake per frame.
            if not generation.finished and len(generation.emitted) < 32_000_000:
                say(generation, flood)
            return bool(bounded_gateway.fleet.cancelled)

        await until(more, "the cancellation", 60)
        assert bounded_gateway.fleet.cancelled == [
            Cancelled(generation.id, "cancelled", "client_disconnected")
        ]
        await until(lambda: bounded_gateway.listener.connections == 0, "the connection gone")
        writer.close()


class TestSlowBodies:
    @pytest.fixture
    def bounds(self) -> GatewaySettings:
        return GatewaySettings(body_deadline_s=0.2)

    async def test_a_body_that_does_not_come(self, bounded_gateway: Gateway) -> None:
        reader, writer = await asyncio.open_connection(bounded_gateway.host, bounded_gateway.port)
        writer.write(post_head(TEXT, 10) + b"{")
        answer = await reader.read()  # to the end: the connection is closed
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"not complete after 0.2 s" in answer
        writer.close()


class TestLargeBodies:
    @pytest.fixture
    def bounds(self) -> GatewaySettings:
        return GatewaySettings(max_body_bytes=100_000, max_bodies_bytes=150_000)

    async def test_a_body_that_says_it_is_too_large(self, bounded_gateway: Gateway) -> None:
        """The whole of it is taken in, so that a client that sends before it reads sees the answer."""
        response = await bounded_gateway.post(CHAT, b"x" * 6_000_000)
        assert response.status_code == 413
        assert response.json()["error"]["message"] == "the body is larger than 100,000 bytes"
        assert response.headers["connection"] == "close"

    @pytest.mark.parametrize("pieces", [11, 600])
    async def test_a_body_that_grows_too_large(self, bounded_gateway: Gateway, pieces: int) -> None:
        async def body() -> Any:
            for _ in range(pieces):
                yield b"x" * 10_000

        headers = {"content-type": "application/json"}
        response = await bounded_gateway.client.post(CHAT, content=body(), headers=headers)
        assert response.status_code == 413

    async def test_bodies_cannot_fill_the_memory_together(self, bounded_gateway: Gateway) -> None:
        _, writer = await asyncio.open_connection(bounded_gateway.host, bounded_gateway.port)
        writer.write(post_head(TEXT, 99_000) + b"x" * 90_000)
        async with asyncio.timeout(60):
            # Until the server has read the first one, the second is only no JSON.
            while (response := await bounded_gateway.post(TEXT, b"x" * 99_000)).status_code != 503:
                assert response.status_code == 400
        assert response.json()["error"]["code"] == "overloaded"
        writer.close()
        await until(lambda: bounded_gateway.listener.connections == 0, "the connections gone")
        assert (await bounded_gateway.post(TEXT, b"x" * 99_000)).status_code == 400
