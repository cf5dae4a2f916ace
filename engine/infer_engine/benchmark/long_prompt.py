"""Part ``chunked``: what a long prompt does to those who decode, its prefill in chunks or whole."""

import asyncio
import time
from typing import Any

from infer_engine.benchmark.client import Answer, Client, at_most
from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.results import Result, compared, result
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.workload import Ask, text

STREAMS = 8
STREAM_PROMPT_TOKENS, STREAM_OUTPUT_TOKENS = 32, 400
LONG_TOKENS = 4000
#: A budget into which the long prompt fits whole, beside the streams.
WHOLE_BUDGET = 8192
KV_BLOCKS = 1024
#: Tokens that each stream has before the long prompt comes.
SETTLED_TOKENS = 4
POLL_S = 0.01
TIMEOUT_S = 300.0


def measure(setup: Setup) -> list[Result]:
    chunked = _measure_with(setup, "in chunks")
    whole = _measure_with(setup, "whole", token_budget=WHOLE_BUDGET)
    worst = [gap for gap, _ in whole]
    ttft = [ttft_s for _, ttft_s in whole]
    what = f"a {LONG_TOKENS:,}-token prompt"
    whole_worst = result(f"worst ITL of {STREAMS} streams under {what}, unchunked", "s", worst)
    whole_ttft = result(f"TTFT of {what} beside {STREAMS} streams, unchunked", "s", ttft)
    return [
        whole_worst,
        whole_ttft,
        compared(
            f"worst ITL of {STREAMS} streams under {what}, chunked",
            "s",
            [gap for gap, _ in chunked],
            "unchunked",
            whole_worst.value,
            wanted=0.2,
            bound="most",
        ),
        compared(
            f"TTFT of {what} beside {STREAMS} streams, chunked",
            "s",
            [ttft_s for _, ttft_s in chunked],
            "unchunked",
            whole_ttft.value,
            note="what chunking costs the long one",
        ),
    ]


def _measure_with(setup: Setup, how: str, **replica: Any) -> list[tuple[float, float]]:
    with engine_server(setup, kv_blocks=KV_BLOCKS, **replica) as server:
        return asyncio.run(_repeats(server.client(), setup, how))


async def _repeats(client: Client, setup: Setup, how: str) -> list[tuple[float, float]]:
    made: list[tuple[float, float]] = []
    async with client:
        for repeat in range(setup.repeats):
            made.append(await interfered(client, setup, repeat))
            setup.say(f"  {how}: worst ITL {made[-1][0]:.2f} s, TTFT of the long one {made[-1][1]:.2f} s")
    return made


async def interfered(client: Client, setup: Setup, repeat: int) -> tuple[float, float]:
    """(The streams' worst ITL since the long prompt was sent, the long prompt's TTFT), in seconds."""
    start = repeat * 271
    streams = [
        Answer(Ask(text(start + 61 * n, STREAM_PROMPT_TOKENS, setup.vocabulary), STREAM_OUTPUT_TOKENS), 0.0)
        for n in range(STREAMS)
    ]
    long = Ask(text(start + 1_000, setup.short(LONG_TOKENS), setup.vocabulary), 1)
    async with at_most(TIMEOUT_S, "a long prompt beside streams"):
        tasks = [asyncio.create_task(client.ask(each.ask, each)) for each in streams]
        try:
            await _until_all_have(streams, tasks, SETTLED_TOKENS)
            sent_s = time.perf_counter()
            answer = await client.ask(long)
            # The gap that it tore ends with the next token.
            await _until_all_have(streams, tasks, 1 + max(len(each.frames_s) for each in streams))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return max(_worst_since(each, sent_s) for each in streams), answer.ttft_s


async def _until_all_have(streams: list[Answer], tasks: list[asyncio.Task[Answer]], tokens: int) -> None:
    while any(len(each.frames_s) < tokens for each in streams):
        for task in tasks:
            if task.done():
                task.result()  # its own error, if it has one
                raise BenchError("a stream ended while the long prompt was still being computed")
        await asyncio.sleep(POLL_S)


def _worst_since(answer: Answer, since_s: float) -> float:
    ends = answer.frames_s[1:]
    return max(gap for gap, end_s in zip(answer.gaps_s, ends, strict=True) if end_s >= since_s)
