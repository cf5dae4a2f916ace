"""Part ``workload``: the committed workload over HTTP with 16 streaming clients, and one request alone.

The peers' servers are measured by the same two functions.
"""

import asyncio

import msgspec

from infer_engine.benchmark.client import Client, Load
from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.statistics import percentile
from infer_engine.benchmark.workload import Ask, text, workload

USEFUL = "useful tokens/s on the workload"
ALONE = "one request alone: tokens/s"
ALONE_PROMPT_TOKENS, ALONE_OUTPUT_TOKENS = 64, 128
#: Where in the text the lone request begins: away from those of the workload.
_ALONE_START = 3_000
LOAD_TIMEOUT_S = 600.0


def measure(setup: Setup) -> list[Result]:
    with engine_server(setup) as server:
        results = asyncio.run(measure_client(server.client(), setup, "infer-console"))
        note = f"{server.replica.dtype} weights, {setup.threads} threads, one replica, over HTTP"
    return [msgspec.structs.replace(results[0], note=note), *results[1:]]


async def measure_client(client: Client, setup: Setup, subject: str) -> list[Result]:
    """Figures of a server that is ready. One short request and one workload's worth of text warm it up."""
    async with client:
        await client.load([_alone(setup, -1)], LOAD_TIMEOUT_S)
        alone = [await _lone(client, setup, repeat) for repeat in range(setup.repeats)]
        loads: list[Load] = []
        for repeat in range(setup.repeats):
            asks = workload(repeat, shrink=setup.shrink, vocabulary=setup.vocabulary)
            loads.append(await client.load(asks, LOAD_TIMEOUT_S))
            setup.say(f"  {subject}: {loads[-1].useful_tokens_per_s:.1f} useful tokens/s")
    return [
        result(USEFUL, "tokens/s", [load.useful_tokens_per_s for load in loads], subject=subject),
        *_latencies(loads, subject),
        result(ALONE, "tokens/s", [load.useful_tokens_per_s for load in alone], subject=subject),
        result("one request alone: TTFT", "s", [load.ttfts_s[0] for load in alone], subject=subject),
        result(
            "one request alone: median ITL",
            "s",
            [percentile(load.gaps_s, 0.5) for load in alone],
            subject=subject,
        ),
    ]


def _latencies(loads: list[Load], subject: str) -> list[Result]:
    made: list[Result] = []
    for share in (0.5, 0.99):
        name = f"p{round(100 * share)}"
        ttfts = [percentile(load.ttfts_s, share) for load in loads]
        gaps = [percentile(load.gaps_s, share) for load in loads]
        made.append(result(f"workload: TTFT {name}", "s", ttfts, subject=subject))
        made.append(result(f"workload: ITL {name}", "s", gaps, subject=subject))
    return made


async def _lone(client: Client, setup: Setup, repeat: int) -> Load:
    return await client.load([_alone(setup, repeat)], LOAD_TIMEOUT_S)


def _alone(setup: Setup, repeat: int) -> Ask:
    prompt = text(_ALONE_START + 101 * (repeat + 1), setup.short(ALONE_PROMPT_TOKENS), setup.vocabulary)
    return Ask(prompt, setup.short(ALONE_OUTPUT_TOKENS))
