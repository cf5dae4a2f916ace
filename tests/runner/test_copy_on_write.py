"""What a real model generates from copied and from shared blocks is what it generates from its own (fp32)."""

import random

from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.model.sampling import Sampling
from infer_engine.runner.runner import Runner
from support.running import make_request, run_all

PROMPT = [random.Random(2).randrange(3, 250) for _ in range(30)]


def samples(count: int) -> list[Request]:
    """One prompt, ``count`` seeds."""
    return [
        make_request(seed, PROMPT, max_tokens=20, sampling=Sampling(temperature=0.9, seed=seed))
        for seed in range(count)
    ]


def outputs(batch: list[Request]) -> list[list[int]]:
    return [request.output for request in batch]


def test_forks_generate_what_they_would_have_alone(runner: Runner) -> None:
    alone, forked = samples(4), samples(4)
    for request in alone:
        run_all(runner, [request])
    blocks = runner.info.kv_blocks
    limits = Limits(admit_limit=blocks, batch_limit=blocks, max_running=8, token_budget=64)
    scheduler = Scheduler(BlockPool(blocks, runner.info.block_size), limits, runner.info.context_length)
    scheduler.add(forked[0], 0.0)
    step = 0.0
    while scheduler.has_work:
        plan = scheduler.step(step)
        scheduler.commit(runner.execute(plan).tokens, step)
        if step == 0.0:
            for request in forked[1:]:
                scheduler.fork("0", request, step)
        step += 1
    assert (scheduler.counters.forks, scheduler.counters.copied_blocks) == (3, 3)
    assert outputs(forked) == outputs(alone)
    assert len({tuple(output) for output in outputs(alone)}) == 4


def test_a_copied_part_of_a_block_changes_no_token(runner: Runner) -> None:
    def variants() -> list[Request]:
        return [make_request(cut, [*PROMPT[:cut], 7, 8, 9, 10, 11]) for cut in range(20, 30)]

    cold, warm = variants(), variants()
    for request in cold:
        run_all(runner, [request])
    pool = BlockPool(runner.info.kv_blocks, runner.info.block_size, prefix_cache=True)
    run_all(runner, [make_request("first", PROMPT)], pool=pool)
    copied = 0
    for request in warm:
        copied += run_all(runner, [request], pool=pool).counters.copied_blocks
    assert [request.cached_tokens for request in warm] == list(range(20, 30))
    assert copied > 5
    assert outputs(warm) == outputs(cold)
