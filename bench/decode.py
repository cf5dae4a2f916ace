"""Tokens per second of the runner alone: decode at several batch sizes, and prefill. No scheduler, no HTTP.

python bench/decode.py --threads 1 2 --batch 1 8 16 32 --context 128
"""

import argparse
import os
import statistics
import subprocess
import sys
import time


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
        out = runner.execute(Plan(step=1, chunks=chunks))
        for chunk in chunks:
            chunk.request.output.append(out[chunk.request.id])
        return time.perf_counter() - started_s

    print(f"threads {torch.get_num_threads()}  dtype {runner.info.dtype}  context {options.context}")
    for batch in options.batch:
        requests = [request(number) for number in range(batch)]
        prefills_s = [step([Chunk(one, 0, len(one.prompt), True)]) for one in requests]
        times_s = [
            step([Chunk(one, one.total_tokens - 1, 1, True) for one in requests])
            for _ in range(options.steps + 2)
        ]
        step_s = statistics.median(times_s[2:])
        print(
            f"  batch {batch:3}: decode {batch / step_s:7.1f} tokens/s, step {1e3 * step_s:6.1f} ms; "
            f"prefill {options.context / statistics.median(prefills_s):7.1f} tokens/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
