"""What this machine can do at best: how fast it reads memory, and how fast it multiplies matrices.

``python -m infer_engine.benchmark.ceilings`` prints both as JSON; a process of its own, because torch takes
its number of threads from the environment once. The best of several tries: a ceiling is no median.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from infer_engine.benchmark.errors import BenchError
from infer_engine.replica.launch_local import child_environment

READ_BYTES = 1 << 29
#: Tokens and width of the product: large enough to be bound by arithmetic.
ROWS, WIDTH = 512, 1536
TRIES = 7
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Ceilings:
    read_bytes_per_s: float
    matmul_flops_per_s: float


def ceilings(threads: int) -> Ceilings:
    """Measure with that many threads; BenchError where it fails."""
    command = [sys.executable, "-m", "infer_engine.benchmark.ceilings"]
    try:
        done = subprocess.run(
            command,
            env=child_environment(threads, os.environ),
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise BenchError(f"the ceilings cannot be measured: {error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"the ceilings take longer than {TIMEOUT_S:.0f} s") from error
    return Ceilings(**json.loads(done.stdout))


def measure() -> Ceilings:
    import torch

    memory = torch.ones(READ_BYTES // 4)
    left, right = torch.rand(ROWS, WIDTH), torch.rand(WIDTH, WIDTH)
    flops = 2 * ROWS * WIDTH * WIDTH
    with torch.inference_mode():
        return Ceilings(
            read_bytes_per_s=READ_BYTES / _best_s(lambda: memory.sum()),
            matmul_flops_per_s=flops / _best_s(lambda: left @ right),
        )


def _best_s(work: Callable[[], object]) -> float:
    taken: list[float] = []
    for _ in range(TRIES):
        began_s = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began_s)
    return min(taken[1:])


if __name__ == "__main__":
    found = measure()
    sys.stdout.write(
        json.dumps(
            {
                "read_bytes_per_s": found.read_bytes_per_s,
                "matmul_flops_per_s": found.matmul_flops_per_s,
            }
        )
    )
