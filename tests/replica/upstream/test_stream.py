"""One request's stream, and what becomes of it where the server's answer has no end."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from infer_engine.core.request import Request
from infer_engine.model.sampling import Sampling
from infer_engine.replica.upstream import stream
from infer_engine.replica.upstream.dialect import Ask
from infer_engine.replica.upstream.stream import Broke, Stream, Told
from infer_engine.replica.upstream.vllm import Vllm


class Body(httpx2.AsyncByteStream):
    """Says one thing, and another for ever where there is one."""

    def __init__(self, first: bytes, ever: bytes | None = None) -> None:
        self._first, self._ever = first, ever
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        while self._ever is not None:
            await asyncio.sleep(0)
            yield self._ever

    async def aclose(self) -> None:
        self.closed = True


def told_of(status: int, body: Body, content_type: str) -> list[Told]:
    """What comes of a request that is answered so."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": content_type}
        return httpx2.Response(status, headers=headers, stream=body)

    async def run() -> list[Told]:
        told: list[Told] = []
        request = Request(id="one", prompt=[1, 2], max_tokens=4, arrival_s=0.0)
        ask = Ask(prompt=[1, 2], max_tokens=4, sampling=Sampling())
        async with httpx2.AsyncClient(
            transport=httpx2.MockTransport(answer), base_url="http://theirs"
        ) as http:
            reading = Stream(request, ask, Vllm("m"), http, lambda _, what: told.append(what))
            await asyncio.wait_for(asyncio.wait({reading.task}), 30)
        return told

    return asyncio.run(run())


def test_a_stream_that_only_keeps_its_connection_open_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_SILENT_S", 0.05)
    body = Body(b"", b": still there\n\n")
    assert told_of(200, body, "text/event-stream") == [
        Broke("broken", "its stream has said no token for 0.05 s")
    ]
    assert body.closed


def test_the_words_of_a_refusal_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FAILURE_S", 1.0)
    body = Body(b"out of memory", b"")
    assert told_of(500, body, "text/plain") == [Broke("broken", "answers 500: out of memory")]
    assert body.closed


def test_an_error_under_a_status_that_says_none_is_heard() -> None:
    assert told_of(200, Body(b'{"error": {"message": "no adapter"}}'), "application/json; charset=utf-8") == [
        Broke("broken", "answers 200: no adapter")
    ]


def test_what_makes_no_sense_is_told_apart_from_a_refusal() -> None:
    assert told_of(400, Body(b'{"message": "too long"}'), "application/json") == [
        Broke("refused", "too long")
    ]
    [strange] = told_of(200, Body(b"data: {{\n\n"), "text/event-stream")
    assert isinstance(strange, Broke)
    assert strange.how == "strange"
