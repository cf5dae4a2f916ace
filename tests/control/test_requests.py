"""Cancelling a request, and reading its text as it is generated."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2
import msgspec
from infer_engine.protocol import Requests, TokenDelta
from support.asking import asked, body, command, ended, refused
from support.server import EngineServer
from support.watching import Mirror, watching


def running(mirror: Mirror) -> list[str]:
    return [row.id for row in mirror.replicas["r0"].in_state("running")]


def used(mirror: Mirror) -> int | None:
    status = mirror.replicas["r0"].status
    return status.kv.used if status is not None else None


async def test_cancel_frees_the_blocks_and_tells_the_client(server: EngineServer) -> None:
    async with watching(server) as watch, asked(server, 1_900) as answer:
        await watch.until(lambda mirror: len(running(mirror)) == 1)
        request = running(watch.mirror)[0]
        dry = await command(server, f"/requests/{request}:cancel", dry_run=True)
        assert dry.operation is None
        assert dry.effect.numbers["max_tokens"] == 1_900
        result = await command(server, f"/requests/{request}:cancel", actor="ann", reason="runaway")
        operation = await ended(server, result.operation)
        assert (operation.phase, operation.kind, operation.target) == ("succeeded", "cancel", request)
        response = await answer
        assert (response.status_code, response.json()["error"]["code"]) == (503, "cancelled_by_operator")
        mirror = await watch.until(lambda mirror: running(mirror) == [] and used(mirror) == 0)
        finish = [event for event in mirror.events if event.kind == "finish" and event.request == request]
        assert [(event.reason, event.actor) for event in finish] == [
            ("cancelled", f"uid:{os.getuid()} (ann)")
        ]
        told = [event for event in mirror.events if event.operation == operation.id]
        assert [event.reason for event in told] == ["running", "succeeded"]
        assert all("runaway" not in (event.message or "") for event in told)

        again = await command(server, f"/requests/{request}:cancel")
        assert again.operation is not None
        assert (again.operation.phase, again.operation.message) == (
            "succeeded",
            "already finished (cancelled)",
        )


async def test_cancel_reaches_the_queue(server: EngineServer) -> None:
    async with watching(server) as watch:
        answers = [asyncio.create_task(complete_quietly(server, 300)) for _ in range(7)]
        waiting = lambda mirror: mirror.replicas["r0"].in_state("waiting")  # noqa: E731
        await watch.until(lambda mirror: len(waiting(mirror)) == 1)
        request = waiting(watch.mirror)[0]
        assert request.waiting_reason == "slots"
        result = await command(server, f"/requests/{request.id}:cancel")
        assert (await ended(server, result.operation)).phase == "succeeded"
        statuses = sorted(response.status_code for response in await asyncio.gather(*answers))
        assert statuses == [200] * 6 + [503]


async def test_cancelling_nothing_says_what_was_given(server: EngineServer) -> None:
    for verb in ("cancel", "preempt"):
        problem = await refused(server, f"/requests/none:{verb}")
        assert (problem.code, problem.detail) == ("unknown_request", "got 'none'")
    for verb in ("drain", "undrain", "fence", "restart"):
        problem = await refused(server, f"/replicas/r9:{verb}")
        assert (problem.code, problem.detail) == ("unknown_replica", "got 'r9'")


async def test_a_limited_list_has_the_oldest_and_counts_the_rest(server: EngineServer) -> None:
    async with watching(server) as watch:
        answers = [asyncio.create_task(complete_quietly(server, 300)) for _ in range(9)]
        queue = lambda mirror: mirror.replicas["r0"].in_state("waiting")  # noqa: E731
        await watch.until(lambda mirror: (len(running(mirror)), len(queue(mirror))) == (6, 3))
        async with server.async_control() as client:
            found = msgspec.json.decode(
                (await client.get("/control/v1/requests?limit=5")).content, type=Requests
            )
            everything = msgspec.json.decode(
                (await client.get("/control/v1/requests")).content, type=Requests
            )
        for answer in answers:
            assert (await answer).status_code == 200
    assert [row.state for row in found.requests] == ["waiting"] * 2 + ["running"] * 3
    assert found.omitted == {"waiting": 1, "running": 3}
    ages = {row.id: row.age_s for row in everything.requests}
    eldest = sorted(
        (row.id for row in everything.requests if row.state == "running"), key=lambda each: -ages[each]
    )
    assert [row.id for row in found.requests[2:]] == eldest[:3]
    assert everything.omitted == {}


async def complete_quietly(server: EngineServer, max_tokens: int) -> httpx2.Response:
    async with server.async_gateway() as client:
        return await client.post("/v1/completions", json=body(max_tokens))


async def frames(response: httpx2.Response) -> AsyncGenerator[str]:
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield line[6:]


async def tap(server: EngineServer, requests: str, of: str = "tokens") -> list[TokenDelta]:
    async with (
        server.async_control() as client,
        client.stream("GET", f"/control/v1/{of}?requests={requests}") as response,
    ):
        assert response.status_code == 200
        return [msgspec.json.decode(data, type=TokenDelta) async for data in frames(response)]


async def test_the_tap_reads_what_the_client_reads(server: EngineServer) -> None:
    async with (
        server.async_gateway() as client,
        client.stream("POST", "/v1/completions", json=body(300, stream=True)) as response,
    ):
        request = response.headers["x-request-id"]
        tapping = asyncio.create_task(tap(server, request))
        timing = asyncio.create_task(tap(server, request, "token-times"))
        async with aclosing(frames(response)) as documents:
            text = "".join([json.loads(each)["choices"][0]["text"] async for each in documents])
    deltas = await asyncio.wait_for(tapping, 60)
    assert "".join(delta.text for delta in deltas) == text
    assert deltas[0].index == 0
    assert [delta.index for delta in deltas[1:]] == [delta.index + delta.tokens for delta in deltas[:-1]]
    assert sum(delta.tokens for delta in deltas) == 300
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["length"]
    assert deltas[-1].finish_reason == "length"
    gaps_s = [gap for delta in deltas for gap in delta.gaps_s]
    assert (len(gaps_s), gaps_s[0]) == (300, None)
    assert sum(number for delta in deltas for number in delta.characters) <= len(text)
    times = await asyncio.wait_for(timing, 60)
    assert [gap for delta in times for gap in delta.gaps_s] == gaps_s
    assert {delta.text for delta in times} == {""}
    assert not any(delta.characters for delta in times)
    assert times[-1].finish_reason == "length"


async def test_several_taps_end_when_all_have_ended(server: EngineServer) -> None:
    async with watching(server) as watch, asked(server, 500), asked(server, 900):
        await watch.until(lambda mirror: len(running(mirror)) == 2)
        requests = running(watch.mirror)
        deltas = await asyncio.wait_for(tap(server, ",".join(requests)), 60)
    by_request = {each: [delta for delta in deltas if delta.request == each] for each in requests}
    assert sorted(sum(delta.tokens for delta in found) for found in by_request.values()) == [500, 900]


async def test_a_tap_on_what_is_over_says_how_it_ended(server: EngineServer) -> None:
    response = await complete_quietly(server, 5)
    deltas = await tap(server, response.headers["x-request-id"])
    assert [(delta.text, delta.tokens, delta.finish_reason) for delta in deltas] == [("", 0, "length")]
