"""Asking a server for answers of a known length, and operating it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from infer_engine.protocol import CommandResult, Operation, Problem
from support.server import EngineServer

TIMEOUT_S = 60.0


def body(max_tokens: int, prompt_tokens: int = 20, **more: Any) -> dict[str, Any]:
    """A completion of exactly so many tokens for a prompt of exactly so many."""
    return {
        "model": "tiny",
        "prompt": [40 + number % 90 for number in range(prompt_tokens)],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        **more,
    }


async def complete(
    server: EngineServer, max_tokens: int, prompt_tokens: int = 20, **more: Any
) -> httpx2.Response:
    async with server.async_gateway() as client:
        return await client.post("/v1/completions", json=body(max_tokens, prompt_tokens, **more))


@asynccontextmanager
async def asked(
    server: EngineServer, max_tokens: int, prompt_tokens: int = 20
) -> AsyncGenerator["asyncio.Task[httpx2.Response]"]:
    """A request under way; at the end its client leaves, whether it was answered or not."""
    task = asyncio.create_task(complete(server, max_tokens, prompt_tokens))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def command(server: EngineServer, path: str, method: str = "POST", **fields: Any) -> CommandResult:
    """Do it; fails unless it was accepted."""
    async with server.async_control() as client:
        response = await client.request(method, f"/control/v1{path}", json=fields)
    assert response.status_code == 200, response.text
    return msgspec.json.decode(response.content, type=CommandResult)


async def refused(server: EngineServer, path: str, method: str = "POST", **fields: Any) -> Problem:
    """Fails unless it was refused with a problem document whose status is the response's."""
    async with server.async_control() as client:
        response = await client.request(method, f"/control/v1{path}", json=fields)
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = msgspec.json.decode(response.content, type=Problem)
    assert problem.status == response.status_code
    return problem


async def ended(server: EngineServer, operation: Operation | None) -> Operation:
    """The operation, once it has ended."""
    assert operation is not None
    async with asyncio.timeout(TIMEOUT_S), server.async_control() as client:
        while True:
            response = await client.get(f"/control/v1/operations/{operation.id}")
            now = msgspec.json.decode(response.content, type=Operation)
            if now.phase not in ("pending", "running"):
                return now
            await asyncio.sleep(0.05)
