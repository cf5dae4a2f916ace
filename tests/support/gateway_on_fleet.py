"""A gateway on a real fleet, the official client of both kinds, and what the fleet's feed said."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from infer_engine.fleet.fleet import Fleet
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import Event, Step
from support.gateway import Gateway, running_fleet, serve_gateway, until

KV_BLOCKS = 128
#: More than the pool holds, so that a prompt can fit the model and not the pool.
CONTEXT_LENGTH = 4096
#: Long enough for a test to look at it while it runs; two of them fit the pool.
LONG_TOKENS = 900
MAX_RUNNING = 2


@dataclass
class Served:
    gateway: Gateway
    fleet: Fleet
    client: openai.OpenAI
    async_client: openai.AsyncOpenAI
    happened: list[Event | Step]

    async def call(self, ask: Callable[[openai.OpenAI], Any]) -> Any:
        """The synchronous client lives in a thread, as in its users' programs."""
        return await asyncio.to_thread(ask, self.client)

    def finish_of(self, request_id: str) -> Event | None:
        ends = [item for item in self.happened if isinstance(item, Event) and item.kind == "finish"]
        return next((event for event in ends if event.request == request_id), None)

    async def idle(self) -> None:
        """No request left and no block held."""
        await until(lambda: not self.fleet.rows(), "no live request")

        def held() -> tuple[int, int]:
            last = next(item for item in reversed(self.happened) if isinstance(item, Step))
            return last.kv_used, last.kv_free + last.kv_cached

        await until(lambda: held() == (0, KV_BLOCKS), "no block held")


@asynccontextmanager
async def serve_fleet(model: Path, tokenizer: Tokenizer) -> AsyncGenerator[Served]:
    """One replica of KV_BLOCKS blocks and MAX_RUNNING slots, on a model of CONTEXT_LENGTH."""
    async with (
        running_fleet(model, kv_blocks=KV_BLOCKS, max_running=MAX_RUNNING) as fleet,
        serve_gateway(tokenizer, context_length=CONTEXT_LENGTH, fleet=fleet) as gateway,
    ):
        happened: list[Event | Step] = []
        unsubscribe = fleet.feed.subscribe(happened.append)
        where: dict[str, Any] = {"base_url": f"{gateway.url}/v1", "api_key": "none", "max_retries": 0}
        with openai.OpenAI(**where) as client:
            async with openai.AsyncOpenAI(**where) as async_client:
                yield Served(gateway, fleet, client, async_client, happened)
        unsubscribe()
