"""Part ``prefix_hit``: the time to first token of a request whose long beginning is in the prefix cache."""

import asyncio

from infer_engine.benchmark.client import Client
from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.results import Result, compared, result
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.workload import Ask, text

PREFIX_TOKENS = 2000
SUFFIX_TOKENS = 16
KV_BLOCKS = 1024
TIMEOUT_S = 120.0


def measure(setup: Setup) -> list[Result]:
    with engine_server(setup, kv_blocks=KV_BLOCKS) as server:
        pairs = asyncio.run(_pairs(server.client(), setup))
    cold = result(f"TTFT with a {PREFIX_TOKENS:,}-token prefix, cold", "s", [first for first, _ in pairs])
    return [
        cold,
        compared(
            f"TTFT with a {PREFIX_TOKENS:,}-token prefix, in the cache",
            "s",
            [second for _, second in pairs],
            "cold",
            cold.value,
            wanted=0.1,
            bound="most",
        ),
    ]


async def _pairs(client: Client, setup: Setup) -> list[tuple[float, float]]:
    """(TTFT of the first with a prefix, TTFT of the next with another ending), in seconds."""
    made: list[tuple[float, float]] = []
    async with client:
        for repeat in range(setup.repeats):
            start = 401 * repeat
            prefix = text(start, setup.short(PREFIX_TOKENS), setup.vocabulary)
            endings = [text(4_000 + start + 50 * n, SUFFIX_TOKENS, setup.vocabulary) for n in range(2)]
            cold, hit = [
                (await client.load([Ask(prefix + ending, 2)], TIMEOUT_S)).ttfts_s[0] for ending in endings
            ]
            made.append((cold, hit))
            setup.say(f"  cold {cold:.3f} s, hit {hit:.3f} s")
    return made
