"""What a real model generates from a cached prefix is what it generates cold (fp32)."""

import random

from infer_engine.core.blocks import BlockPool
from infer_engine.core.request import Request
from infer_engine.runner.runner import Runner
from support.running import make_request, run_all

SYSTEM = [random.Random(1).randrange(3, 250) for _ in range(43)]


def requests() -> list[Request]:
    """Eight that begin with SYSTEM, wholly or in part, and go on by themselves; one is SYSTEM alone."""
    tails = [random.Random(seed) for seed in range(8)]
    return [
        make_request(
            number,
            SYSTEM[: 43 - 5 * number] + [tail.randrange(3, 250) for _ in range(3 * number)],
            max_tokens=12,
        )
        for number, tail in enumerate(tails)
    ]


def outputs(batch: list[Request]) -> list[list[int]]:
    return [request.output for request in batch]


def cached_pool(runner: Runner, blocks: int | None = None) -> BlockPool:
    return BlockPool(blocks or runner.info.kv_blocks, runner.info.block_size, prefix_cache=True)


def test_a_hit_changes_no_token(runner: Runner) -> None:
    cold = requests()
    run_all(runner, cold)
    pool = cached_pool(runner)
    for request in requests():
        run_all(runner, [request], pool=pool)
    warm = requests()
    run_all(runner, warm, pool=pool, token_budget=16)
    assert [request.cached_tokens for request in warm] == [len(request.prompt) - 1 for request in warm]
    assert outputs(warm) == outputs(cold)


def test_a_hit_on_blocks_in_use_and_on_what_the_preempted_left_changes_no_token(runner: Runner) -> None:
    cold = requests()
    run_all(runner, cold)
    squeezed = requests()
    scheduler = run_all(runner, squeezed, pool=cached_pool(runner, 26))
    counters = scheduler.counters
    assert min(counters.preemptions, counters.prefix_hit_tokens, counters.evicted_blocks) > 0
    assert outputs(squeezed) == outputs(cold)
