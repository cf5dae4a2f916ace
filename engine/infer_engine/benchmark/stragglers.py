"""Part ``stragglers``: continuous batching against static batching, where a few answers are long.

The static mode is the client's: it sends a batch and waits for the last of it before it sends the next, so
nothing of it is in the product. ``padded`` also computes every answer of a batch to the length of its
longest, as a batch in lockstep does; only the tokens that were asked for count.
"""

import asyncio
import time
from collections.abc import Sequence

from infer_engine.benchmark.client import Client
from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.results import Result, compared, result
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.workload import Ask, text

SLOTS = 8
BATCHES = 3
PROMPT_TOKENS = 32
#: Of each batch: one straggler among short answers.
OUTPUT_TOKENS = (192, 16, 24, 32, 16, 40, 24, 48)
TIMEOUT_S = 300.0


def asks_of(setup: Setup, start: int) -> list[Ask]:
    outputs = OUTPUT_TOKENS * BATCHES
    return [
        Ask(text(start + 41 * n, setup.short(PROMPT_TOKENS), setup.vocabulary), setup.short(tokens))
        for n, tokens in enumerate(outputs)
    ]


def batches_of(asks: Sequence[Ask], *, padded: bool) -> list[list[Ask]]:
    """``asks`` in batches of SLOTS, in order; ``padded`` to the longest answer of each."""
    made: list[list[Ask]] = []
    for first in range(0, len(asks), SLOTS):
        batch = list(asks[first : first + SLOTS])
        if padded:
            longest = max(each.output_tokens for each in batch)
            batch = [Ask(each.prompt, longest) for each in batch]
        made.append(batch)
    return made


def measure(setup: Setup) -> list[Result]:
    with engine_server(setup, max_running=SLOTS) as server:
        rates = asyncio.run(_rates(server.client(), setup))
    what = "useful tokens/s with stragglers"
    static = result(f"{what}, static batching", "tokens/s", rates["static"])
    padded = result(f"{what}, static batching, padded", "tokens/s", rates["padded"])
    samples = rates["continuous"]
    return [
        static,
        padded,
        compared(f"{what}, continuous batching", "tokens/s", samples, "static batching", static.value),
        compared(
            f"{what}, continuous batching (padded)",
            "tokens/s",
            samples,
            "static batching, padded",
            padded.value,
        ),
    ]


async def _rates(client: Client, setup: Setup) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {"continuous": [], "static": [], "padded": []}
    start = 0
    async with client:
        for _ in range(setup.repeats):
            for mode, samples in rates.items():
                asks = asks_of(setup, start)
                start += 997
                rounds = [asks] if mode == "continuous" else batches_of(asks, padded=mode == "padded")
                began_s = time.perf_counter()
                for batch in rounds:
                    await client.load(batch, TIMEOUT_S)
                useful = sum(each.output_tokens for each in asks)
                samples.append(useful / (time.perf_counter() - began_s))
                setup.say(f"  {mode}: {samples[-1]:.1f} useful tokens/s")
    return rates
