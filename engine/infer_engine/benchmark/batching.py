"""Part ``batching``: batching is nearly free. Decode tokens/s at growing batch sizes, beside the roofline.

The roofline is the fastest that any engine with fp16 weights can decode here: a step reads every weight once
and each sequence's KV, and multiplies each weight once per sequence; the slower of the two counts.
"""

import asyncio
from dataclasses import dataclass
from math import prod

from infer_engine.benchmark.ceilings import Ceilings, ceilings
from infer_engine.benchmark.client import Client, Load
from infer_engine.benchmark.engine_server import engine_server
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.results import Result, compared, result
from infer_engine.benchmark.setup import Setup
from infer_engine.benchmark.workload import Ask, text
from infer_engine.model.architecture import read_architecture
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.store import resolve

BATCHES = (1, 2, 4, 8, 16, 32)
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 96
TIMEOUT_S = 300.0
ROOFLINE = "roofline, fp16 weights"


def measure_name(batch: int) -> str:
    return f"decode tokens/s at batch {batch}"


@dataclass(frozen=True, slots=True)
class Roofline:
    """``weights`` that a decode step multiplies with; ``kv_bytes`` of one sequence at half its answer."""

    weights: int
    kv_bytes: int
    machine: Ceilings

    def step_s(self, batch: int) -> float:
        """At best."""
        read_bytes = 2 * self.weights + batch * self.kv_bytes
        return max(
            read_bytes / self.machine.read_bytes_per_s,
            2 * self.weights * batch / self.machine.matmul_flops_per_s,
        )

    def tokens_per_s(self, batch: int) -> float:
        return batch / self.step_s(batch)


def roofline(model: str, machine: Ceilings, kv_bytes_per_token: int) -> Roofline:
    gguf = read_gguf(resolve(model))
    architecture = read_architecture(gguf)
    matrices = [entry for entry in gguf.tensors.values() if len(entry.shape) == 2]
    weights = sum(prod(entry.shape) for entry in matrices)
    if not architecture.tied:  # of the embedding, a step reads a row
        weights -= prod(gguf.tensors["token_embd.weight"].shape)
    context = PROMPT_TOKENS + OUTPUT_TOKENS // 2
    return Roofline(weights, context * kv_bytes_per_token, machine)


def measure(setup: Setup) -> list[Result]:
    machine = ceilings(setup.threads)
    rates: dict[int, list[float]] = {batch: [] for batch in BATCHES}
    with engine_server(setup, max_running=max(BATCHES)) as server:
        best = roofline(setup.model, machine, server.replica.kv.bytes_per_token or 0)
        asyncio.run(_rates(server.client(), setup, rates))
    threads = f"{setup.threads} threads"
    return [
        result("read bandwidth", "bytes/s", [machine.read_bytes_per_s], note=threads),
        result("fp32 matrix rate", "FLOP/s", [machine.matmul_flops_per_s], note=threads),
        *(
            compared(
                measure_name(batch),
                "tokens/s",
                samples,
                ROOFLINE,
                best.tokens_per_s(batch),
                note="a batch of equal requests over HTTP, while all of them decode",
            )
            for batch, samples in rates.items()
        ),
    ]


async def _rates(client: Client, setup: Setup, rates: dict[int, list[float]]) -> None:
    start = 0
    async with client:
        for _ in range(setup.repeats):
            for batch in BATCHES:
                asks: list[Ask] = []
                for _ in range(batch):
                    prompt = text(start, setup.short(PROMPT_TOKENS), setup.vocabulary)
                    asks.append(Ask(prompt, setup.short(OUTPUT_TOKENS)))
                    start += 53
                load = await client.load(asks, TIMEOUT_S)
                rates[batch].append(decode_rate(load))
                setup.say(f"  batch {batch:2}: {rates[batch][-1]:.1f} tokens/s")


def decode_rate(load: Load) -> float:
    """Tokens per second from the moment when the last request has its first token until the first request
    ends: all decode, nobody prefills. BenchError where there is no such time."""
    began_s = max(each.frames_s[0] for each in load.answers)
    ended_s = min(each.frames_s[-1] for each in load.answers)
    if ended_s <= began_s:
        raise BenchError("the first request ended before the last one began to decode")
    # A frame is a token but for the few that wait for the rest of a character: count by the answer's total.
    tokens = 0.0
    for each in load.answers:
        inside = sum(began_s < moment <= ended_s for moment in each.frames_s)
        tokens += inside * (each.output_tokens or 0) / len(each.frames_s)
    return tokens / (ended_s - began_s)
