"""The draws of a seed are the same wherever and beside whomever they are made (fp32)."""

import pytest
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.model.sampling import Sampling
from infer_engine.runner.runner import Runner
from support.running import GREEDY, make_request, run_all


def seeded(count: int = 6) -> list[Request]:
    return [
        make_request(
            name,
            range(3 + name, 10 + 8 * name),
            24,
            sampling=Sampling(temperature=0.9, top_p=0.95, seed=11 + name),
        )
        for name in range(count)
    ]


@pytest.fixture(scope="module")
def alone(runner: Runner) -> list[list[int]]:
    requests = seeded()
    for request in requests:
        run_all(runner, [request])
    return [request.output for request in requests]


def test_a_seed_draws_the_same_beside_others_seeded_and_greedy(
    runner: Runner, alone: list[list[int]]
) -> None:
    requests = seeded()
    others = [
        make_request(
            f"other {number}",
            range(40, 50 + number),
            30,
            sampling=GREEDY if number % 2 else Sampling(temperature=1.1, seed=99),
        )
        for number in range(4)
    ]
    run_all(runner, [*others[:2], *requests, *others[2:]])
    assert [request.output for request in requests] == alone
    assert len({tuple(output) for output in alone}) == len(alone)


def test_who_is_preempted_and_recomputed_goes_on_with_the_next_draw(
    runner: Runner, alone: list[list[int]]
) -> None:
    """By swap: tests/runner/test_swap.py."""
    requests = seeded()
    scheduler = run_all(runner, requests, kv_blocks=40, host=HostPool(0, "recompute"))
    assert scheduler.counters.preemptions > 1
    assert [request.output for request in requests] == alone
