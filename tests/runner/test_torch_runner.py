import random

import pytest
from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.model.sampling import Sampling
from infer_engine.runner.runner import Runner
from support.running import make_request, run_all
from support.tiny_model import tiny_vocabulary

SAMPLED = Sampling(temperature=0.9, top_p=0.95, seed=11)


def batch_of(count: int, sampling: Sampling | None = None) -> list[Request]:
    """Requests of 1 to 60 prompt tokens."""
    rng = random.Random(count)
    return [
        make_request(
            name,
            [rng.randrange(3, 250) for _ in range(1 + name * 59 // max(1, count - 1))],
            max_tokens=12,
            **({"sampling": sampling} if sampling else {}),
        )
        for name in range(count)
    ]


def outputs(requests: list[Request]) -> list[list[int]]:
    assert all(len(request.output) == request.max_tokens for request in requests)
    return [request.output for request in requests]


@pytest.mark.parametrize("sampling", [None, SAMPLED], ids=["greedy", "sampled"])
def test_output_does_not_depend_on_neighbours_or_chunks(runner: Runner, sampling: Sampling | None) -> None:
    alone = batch_of(6, sampling)
    for request in alone:
        run_all(runner, [request], token_budget=512)
    together = batch_of(6, sampling)
    run_all(runner, together, token_budget=7, max_running=6)
    assert outputs(together) == outputs(alone)
    assert len({tuple(output) for output in outputs(alone)}) == 6


def test_preemption_by_recompute_changes_nothing(runner: Runner) -> None:
    undisturbed, squeezed = batch_of(6, SAMPLED), batch_of(6, SAMPLED)
    run_all(runner, undisturbed)
    run_all(runner, squeezed, kv_blocks=22)
    assert sum(request.preemptions for request in squeezed) > 0
    assert outputs(squeezed) == outputs(undisturbed)


def test_a_sequence_continues_elsewhere_from_its_tokens(runner: Runner) -> None:
    (whole,) = batch_of(1, SAMPLED)
    run_all(runner, [whole])
    (moved,) = batch_of(1, SAMPLED)
    moved.output = whole.output[:5]
    run_all(runner, [moved])
    assert moved.output == whole.output


def test_a_chunk_that_does_not_reach_the_end_samples_nothing(runner: Runner) -> None:
    request = make_request("r", range(3, 30))
    request.block_table = [9, 3, 70, 1, 5, 2, 4]
    assert runner.execute(Plan(step=1, chunks=[Chunk(request, 0, 20, samples=False)])).tokens == {}
    assert runner.execute(Plan(step=2)).tokens == {}
    sampled = runner.execute(Plan(step=3, chunks=[Chunk(request, 20, 7, samples=True)]))
    assert sampled.tokens.keys() == {"r"}


def test_an_impossible_token_costs_only_its_own_request(runner: Runner) -> None:
    good, bad = make_request("good", range(3, 20)), make_request("bad", [5, 10**6, -3, 7])
    alone = make_request("good", range(3, 20))
    run_all(runner, [alone])
    run_all(runner, [good, bad])
    assert good.output == alone.output
    assert all(0 <= token < len(tiny_vocabulary()) for token in bad.output)


def test_tokens_of_prompt_and_output_are_one_sequence() -> None:
    request = make_request("r", [1, 2, 3])
    request.output = [4, 5]
    for start in range(5):
        for count in range(1, 6 - start):
            assert request.tokens(start, count) == [1, 2, 3, 4, 5][start : start + count]
