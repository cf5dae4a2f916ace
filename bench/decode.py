"""Tokens per second of the runner alone: decode at several batch sizes, and prefill. No scheduler, no HTTP.

Beside each decode step stands the floor of the same process: fp16 weights over the read bandwidth measured
here, or its operations over torch's fp32 matrix rate, the larger.

python bench/decode.py --threads 1 2 --batch 1 8 16 32 --context 128
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--context", type=int, default=128, help="tokens in the KV cache of each sequence")
    parser.add_argument("--steps", type=int, default=15, help="measured steps; the median counts")
    parser.add_argument("--dtype", choices=["auto", "fp32"], default="auto")
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    if "INFER_BENCH_CHILD" in os.environ:
        measure(options)
        return
    for threads in options.threads:
        # A process each: torch reads its number of threads and their waiting policy once.
        environment = {
            **os.environ,
            "INFER_BENCH_CHILD": "1",
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment, check=True)


def measure(options: argparse.Namespace) -> None:
    import torch
    from infer_engine.core.plan import Chunk, Plan
    from infer_engine.core.request import Request
    from infer_engine.runner.load import load_runner
    from infer_engine.settings import DEFAULT_MODEL, ReplicaSettings

    blocks_each = -(-(options.context + options.steps + 3) // 16)
    settings = ReplicaSettings(
        model=options.model or DEFAULT_MODEL, dtype=options.dtype, kv_blocks=blocks_each * max(options.batch)
    )
    runner = load_runner(settings, lambda _fraction, _what: None)

    def request(number: int) -> Request:
        table = list(range(number * blocks_each, (number + 1) * blocks_each))
        prompt = [(31 * number + 7 * n) % runner.info.vocab_size for n in range(options.context)]
        return Request(id=str(number), prompt=prompt, max_tokens=1000, arrival_s=0.0, block_table=table)

    def step(chunks: list[Chunk]) -> float:
        started_s = time.perf_counter()
        out = runner.execute(Plan(step=1, chunks=chunks)).tokens
        for chunk in chunks:
            chunk.request.output.append(out[chunk.request.id])
        return time.perf_counter() - started_s

    bandwidth, rate = ceilings()
    parameters = matrix_parameters(settings.model)
    print(
        f"threads {torch.get_num_threads()}  dtype {runner.info.dtype}  paths {runner.info.paths}  "
        f"context {options.context}; read {bandwidth / 1e9:.1f} GB/s, fp32 matmul {rate / 1e9:.0f} GFLOP/s"
    )
    for batch in options.batch:
        requests = [request(number) for number in range(batch)]
        prefills_s = [step([Chunk(one, 0, len(one.prompt), True)]) for one in requests]
        times_s = [
            step([Chunk(one, one.total_tokens - 1, 1, True) for one in requests])
            for _ in range(options.steps + 2)
        ]
        step_s = statistics.median(times_s[2:])
        floor_s = max(2 * parameters / bandwidth, 2 * parameters * batch / rate)
        print(
            f"  batch {batch:3}: decode {batch / step_s:7.1f} tokens/s, step {1e3 * step_s:6.1f} ms, "
            f"{step_s / floor_s:.2f} x the floor; "
            f"prefill {options.context / statistics.median(prefills_s):7.1f} tokens/s",
            flush=True,
        )


def ceilings() -> tuple[float, float]:
    """Bytes read a second and fp32 operations a second, the best of a few tries with torch's threads."""
    import torch

    memory = torch.ones(64 << 20)
    square = torch.randn(1536, 1536)

    def best_s(work: Callable[[], object]) -> float:
        times_s: list[float] = []
        for _ in range(6):
            started_s = time.perf_counter()
            work()
            times_s.append(time.perf_counter() - started_s)
        return min(times_s)

    return memory.nbytes / best_s(memory.sum), 2 * 1536**3 / best_s(lambda: square @ square)


def matrix_parameters(model: str) -> int:
    """Elements of all matrices that a token is multiplied by."""
    from math import prod

    from infer_engine.model.gguf_file import read_gguf
    from infer_engine.model.store import resolve

    tensors = read_gguf(resolve(model)).tensors
    tied = "output.weight" not in tensors
    return sum(
        prod(entry.shape)
        for tensor, entry in tensors.items()
        if len(entry.shape) == 2 and (tied or tensor != "token_embd.weight")
    )


if __name__ == "__main__":
    main()
