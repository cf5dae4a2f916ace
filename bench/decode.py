"""The runner alone, without scheduler or HTTP: decode steps at several batch sizes and contexts, and prefill.

Beside each step stands its floor: fp16 weights over the read bandwidth, or the operations over torch's fp32
matrix rate, the larger, both measured in the same run with as many threads.

python bench/decode.py                                    a table
python bench/decode.py --json                             one results document
python bench/decode.py --threads 2 --batch 1 16 --context 128
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from infer_engine.benchmark.batching import Roofline, roofline
from infer_engine.benchmark.ceilings import ceilings
from infer_engine.benchmark.machine import cores, describe
from infer_engine.benchmark.results import Document, Result, compared, encode, result
from infer_engine.benchmark.table import text_table
from infer_engine.replica.launch_local import child_environment
from infer_engine.settings import DEFAULT_MODEL

BLOCK_SIZE = 16
CHILD = "INFER_BENCH_CHILD"
#: At most so many times the floor, by batch, at this context and with all threads.
WANTED, WANTED_CONTEXT = {1: 2.5, 16: 2.0}, 128


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores()}))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--context", type=int, nargs="+", default=[128, 1024], help="tokens before the step")
    parser.add_argument("--steps", type=int, default=9, help="measured steps; the median counts")
    parser.add_argument("--dtype", choices=["auto", "fp32"], default="auto")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--json", action="store_true", help="one results document")
    options = parser.parse_args()
    if CHILD in os.environ:
        print(json.dumps(measure(options)))
        return
    results: list[Result] = []
    paths: dict[str, Any] = {}
    for threads in options.threads:
        # A process each: torch reads its number of threads and their waiting policy once.
        environment = {**child_environment(threads, os.environ), CHILD: "1"}
        command = [sys.executable, __file__, *sys.argv[1:]]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        samples = json.loads(done.stdout)
        paths = samples["paths"]
        best = roofline(options.model, ceilings(threads), 0)
        results += told(samples, best, threads, threads == max(options.threads))
    if options.json:
        machine = {**describe(), "paths": paths}
        sys.stdout.buffer.write(encode(Document(machine=machine, results=results)))
    else:
        print(text_table(results))


def told(samples: dict[str, Any], best: Roofline, threads: int, every_thread: bool) -> list[Result]:
    note = f"{threads} threads, {samples['paths']['model']}"
    results = [
        result(f"read bandwidth, {threads} threads", "bytes/s", [best.machine.read_bytes_per_s]),
        result(f"fp32 matrix rate, {threads} threads", "FLOP/s", [best.machine.matmul_flops_per_s]),
    ]
    for context, batch, times_s in samples["decode"]:
        floor_s = best.step_s(batch)
        wanted = WANTED.get(batch) if every_thread and context == WANTED_CONTEXT else None
        measure_name = f"decode step, batch {batch}, context {context}, {threads} threads"
        against = "the floor with fp16 weights"
        results.append(
            compared(measure_name, "s", times_s, against, floor_s, wanted=wanted, bound="most", note=note)
        )
    for context, times_s in samples["prefill"]:
        rates = [context / each_s for each_s in times_s]
        fastest = best.machine.matmul_flops_per_s / (2 * best.weights)
        measure_name = f"prefill, {context} tokens, {threads} threads"
        results.append(
            compared(measure_name, "tokens/s", rates, "all of the fp32 matrix rate", fastest, note=note)
        )
    return results


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of every step, in this process."""
    from infer_engine.core.plan import Chunk, Plan
    from infer_engine.core.request import Request
    from infer_engine.runner.load import load_runner
    from infer_engine.settings import ReplicaSettings

    blocks_each = -(-(max(options.context) + options.steps + 3) // BLOCK_SIZE)
    settings = ReplicaSettings(
        model=options.model,
        dtype=options.dtype,
        kv_blocks=blocks_each * max(options.batch),
        block_size=BLOCK_SIZE,
    )
    runner = load_runner(settings, lambda _fraction, _what: None)

    def request(number: int, context: int) -> Request:
        table = list(range(number * blocks_each, (number + 1) * blocks_each))
        prompt = [7 * n % runner.info.vocab_size for n in range(context)]
        return Request(id=str(number), prompt=prompt, max_tokens=4096, arrival_s=0.0, block_table=table)

    def step(chunks: list[Chunk]) -> float:
        started_s = time.perf_counter()
        tokens = runner.execute(Plan(step=1, chunks=chunks)).tokens
        taken_s = time.perf_counter() - started_s
        for chunk in chunks:
            chunk.request.output.append(tokens[chunk.request.id])
        return taken_s

    decodes: list[tuple[int, int, list[float]]] = []
    prefills: list[tuple[int, list[float]]] = []
    for context in options.context:
        repeats = 3 if context >= 512 else 5
        times_s = [step([Chunk(request(0, context), 0, context, True)]) for _ in range(repeats + 1)][1:]
        prefills.append((context, times_s))
        # The same prompt for all, in blocks of their own: computed once, and copied.
        copies = [
            (block, number * blocks_each + block)
            for number in range(1, max(options.batch))
            for block in range(-(-context // BLOCK_SIZE))
        ]
        runner.execute(Plan(step=1, copies=copies))
        for batch in options.batch:
            requests = [request(number, context) for number in range(batch)]
            for one in requests:
                one.output.append(1)
            steps_s = [
                step([Chunk(one, one.total_tokens - 1, 1, True) for one in requests])
                for _ in range(options.steps + 2)
            ][2:]
            decodes.append((context, batch, steps_s))
            print(
                f"  context {context}, batch {batch}: {1e3 * statistics.median(steps_s):.1f} ms",
                file=sys.stderr,
                flush=True,
            )
    runner.close()
    return {"paths": runner.info.paths, "decode": decodes, "prefill": prefills}


if __name__ == "__main__":
    main()
