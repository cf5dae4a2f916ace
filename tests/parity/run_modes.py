"""64 prompts, greedy, fp32, computed in every way that the scheduler knows, against ``transformers``.

    python tests/parity/run_modes.py --tokens 64

Prints for each mode how many prompts agree and where the others part from the expected tokens: with a gap of
the two top logits under 1e-3 that is a tie which another order of summation decides otherwise; else the exit
status is 1. Last, of the default weights path, how often its best token is that of fp32 when both are given
the same tokens before it.
"""

import argparse
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from infer_engine.core.plan import Chunk, Plan
from parity.compare import TIE, Case, cases, differences
from parity.modes import BLOCK_SIZE, KV_BLOCKS, MODES, Bench
from support.running import make_request, make_runner

#: Two halves of about equal work.
SHARES = (
    ("alone", "batched", "prefix hit", "after copy-on-write", "squeezed"),
    ("chunked", "preempted by swap", "preempted by recompute"),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=64, help="of each prompt, at most 64")
    parser.add_argument("--tokens-alone", type=int, help="the same of the mode `alone` (default: --tokens)")
    parser.add_argument("--share", type=int, choices=range(len(SHARES)), help="one part of the modes alone")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each mode")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    known = cases()
    runner = make_runner(
        dtype="fp32",
        device="cpu",
        block_size=BLOCK_SIZE,
        kv_blocks=KV_BLOCKS,
        host_blocks=KV_BLOCKS,
        threads=options.threads,
    )
    bench = Bench(
        runner,
        [case.prompt for case in known],
        options.tokens,
        tokens_alone=options.tokens_alone or options.tokens,
    )
    names = [name for share in SHARES for name in share] if options.share is None else SHARES[options.share]
    wrong = 0
    for name in names:
        outputs = MODES[name](bench)
        wrong += report(name, outputs, known, bench, options.json)
    runner.close()
    if options.share is None:
        print(agreement_of_default(known, options.tokens, options.threads))
    return min(wrong, 1)


def report(name: str, outputs: list[list[int]], known: list[Case], bench: Bench, as_json: bool) -> int:
    """Print it; returns the number of differences that are no ties."""
    if as_json:
        line = {"mode": name, "outputs": outputs, "went_through": bench.went_through}
        print(json.dumps(line), flush=True)
        return 0
    found = differences(outputs, known)
    bad = [each for each in found if each.gap >= TIE]
    through = ", ".join(f"{count:,} {what}" for what, count in bench.went_through.items() if count)
    print(
        f"{name}: {len(outputs) - len(found)} of {len(outputs)} prompts equal over {len(outputs[0])} tokens, "
        f"{len(found) - len(bad)} ties, {len(bad)} wrong" + (f" ({through})" if through else ""),
        flush=True,
    )
    for each in found:
        print(f"  {'tie' if each.gap < TIE else 'WRONG'}: {each}", flush=True)
    return len(bad)


def agreement_of_default(known: list[Case], tokens: int, threads: int | None) -> str:
    """How often the default path's best token is that of fp32, both behind the tokens of fp32."""
    runner = make_runner(device="cpu", kv_blocks=KV_BLOCKS, threads=threads)
    size = runner.info.block_size
    free = iter(range(KV_BLOCKS))
    requests = []
    for number, case in enumerate(known):
        request = make_request(number, case.prompt, max_tokens=tokens + 1)
        blocks = -(-(len(case.prompt) + tokens) // size)
        request.block_table = [next(free) for _ in range(blocks)]
        requests.append(request)
    agreed = 0
    for position in range(tokens):
        chunks = [
            Chunk(request, request.computed_tokens, request.total_tokens - request.computed_tokens, True)
            for request in requests
        ]
        chosen = runner.execute(Plan(step=position + 1, chunks=chunks)).tokens
        for request, case in zip(requests, known, strict=True):
            agreed += chosen[request.id] == case.expected[position]
            request.computed_tokens = request.total_tokens
            request.output.append(case.expected[position])
    dtype = runner.info.dtype
    runner.close()
    asked = tokens * len(known)
    return f"default path ({dtype}): {agreed} of {asked} best tokens are those of fp32: {agreed / asked:.4f}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
