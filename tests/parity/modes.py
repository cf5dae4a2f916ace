"""The ways in which the same prompts are computed; every one must give the same tokens.

Each returns the outputs in the order of the prompts, and says what it went through, so that a mode which did
not do what it is for fails rather than agrees.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from infer_engine.core.blocks import BlockPool
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.core.swap import HostPool, SwapCost
from infer_engine.protocol import PreemptChoice
from infer_engine.runner.runner import Runner
from support.forced import ForcedPreemption
from support.running import make_request, run_all

#: Small enough that ten tokens fill up the block in which a prompt ends, so that it can be hit.
BLOCK_SIZE = 8
KV_BLOCKS = 1280
#: What the squeezed mode has of it: far less than the prompts and their outputs need together.
SQUEEZED_BLOCKS = 144
Outputs = list[list[int]]


@dataclass
class Bench:
    """Prompts, how many tokens to generate of each, and how many where one request runs alone."""

    runner: Runner
    prompts: list[list[int]]
    tokens: int
    tokens_alone: int
    #: What an earlier mode left in the prefix cache.
    warm: BlockPool | None = None
    went_through: dict[str, int] = field(default_factory=dict)

    def requests(self, tokens: int | None = None, prefix: str = "") -> list[Request]:
        return [
            make_request(f"{prefix}{number}", prompt, max_tokens=tokens or self.tokens)
            for number, prompt in enumerate(self.prompts)
        ]

    def run(self, requests: list[Request], scheduler: Scheduler) -> Outputs:
        counters = scheduler.counters
        self.went_through = {
            "steps": counters.steps,
            "swaps": counters.swaps,
            "recomputes": counters.preemptions - counters.swaps,
            "hit tokens": counters.prefix_hit_tokens,
            "forks": counters.forks,
            "copied blocks": counters.copied_blocks,
        }
        return [request.output for request in requests]


def alone(bench: Bench) -> Outputs:
    """One after the other, each in an empty pool."""
    requests = bench.requests(bench.tokens_alone)
    for request in requests:
        run_all(bench.runner, [request], token_budget=4096)
    bench.went_through = {}
    return [request.output for request in requests]


def batched(bench: Bench) -> Outputs:
    """All at once; what they compute stays in the prefix cache."""
    bench.warm = BlockPool(KV_BLOCKS, bench.runner.info.block_size, prefix_cache=True)
    requests = bench.requests()
    scheduler = run_all(bench.runner, requests, pool=bench.warm, token_budget=4096, max_running=len(requests))
    assert scheduler.counters.prefix_hit_tokens == 0
    assert scheduler.counters.steps == bench.tokens
    return bench.run(requests, scheduler)


def prefix_hit(bench: Bench) -> Outputs:
    """Once more on what ``batched`` left: of most prompts only the last token is computed, and of those that
    begin like more others than are tried, less than a block."""
    assert bench.warm is not None, "batched comes first"
    requests = bench.requests()
    scheduler = run_all(bench.runner, requests, pool=bench.warm, token_budget=4096, max_running=len(requests))
    left = [len(request.prompt) - request.cached_tokens for request in requests]
    assert left.count(1) >= len(requests) * 3 // 4
    assert max(left) <= BLOCK_SIZE
    assert scheduler.counters.copied_blocks > len(requests) // 2
    return bench.run(requests, scheduler)


def chunked(bench: Bench) -> Outputs:
    """Prompts in chunks of a few tokens, beside others that decode."""
    requests = bench.requests()
    scheduler = run_all(bench.runner, requests, token_budget=28, max_running=16)
    assert scheduler.counters.steps >= sum(map(len, bench.prompts)) // 28
    return bench.run(requests, scheduler)


def preempted_by_swap(bench: Bench) -> Outputs:
    return _preempted(bench, "swap")


def preempted_by_recompute(bench: Bench) -> Outputs:
    return _preempted(bench, "recompute")


def _preempted(bench: Bench, choice: PreemptChoice) -> Outputs:
    """Each is preempted once, after another number of tokens than its neighbours."""

    def due(running: list[Request]) -> list[Request]:
        return [
            request
            for request in running
            if request.preemptions == 0 and len(request.output) > int(request.id) % (bench.tokens - 1)
        ]

    requests = bench.requests()
    scheduler = run_all(
        bench.runner,
        requests,
        token_budget=4096,
        max_running=len(requests),
        host=HostPool(KV_BLOCKS, choice),
        prepare=lambda scheduler: force(scheduler, due),
    )
    counters = scheduler.counters
    assert [request.preemptions for request in requests] == [1] * len(requests)
    assert counters.swaps == (len(requests) if choice == "swap" else 0)
    return bench.run(requests, scheduler)


def force(scheduler: Scheduler, due: Callable[[list[Request]], list[Request]]) -> None:
    ForcedPreemption(scheduler, due)


def squeezed(bench: Bench) -> Outputs:
    """A pool too small for all, so that they preempt each other, each by what is cheaper for it."""
    size = bench.runner.info.block_size
    requests = bench.requests()
    # A block moved costs as much as computing three quarters of it.
    host = HostPool(SQUEEZED_BLOCKS, "auto", SwapCost(block_s=0.75 * size, token_s=1.0))
    pool = BlockPool(SQUEEZED_BLOCKS, size, prefix_cache=True)
    scheduler = run_all(
        bench.runner, requests, pool=pool, host=host, token_budget=256, max_running=len(requests)
    )
    counters = scheduler.counters
    assert min(counters.swaps, counters.preemptions - counters.swaps) > 0, bench.run(requests, scheduler)
    return bench.run(requests, scheduler)


def after_copy_on_write(bench: Bench) -> Outputs:
    """Forks of running requests, which generate two more tokens of their own beside them. The parents begin
    on what ``batched`` left."""
    assert bench.warm is not None, "batched comes first"
    parents, children = bench.requests(tokens=3, prefix="parent of "), bench.requests()

    def fork(scheduler: Scheduler) -> None:
        if scheduler.counters.steps == 1:
            for child in children:
                scheduler.fork(f"parent of {child.id}", child, 0.0)

    scheduler = run_all(
        bench.runner,
        parents,
        pool=bench.warm,
        token_budget=4096,
        max_running=len(parents) + len(children),
        before_step=fork,
    )
    assert [child.output[:3] for child in children] == [parent.output for parent in parents]
    assert scheduler.counters.forks == len(children)
    assert scheduler.counters.copied_blocks > len(children) // 2
    return bench.run(children, scheduler)


MODES: dict[str, Callable[[Bench], Outputs]] = {
    "alone": alone,
    "batched": batched,
    "prefix hit": prefix_hit,
    "after copy-on-write": after_copy_on_write,
    "chunked": chunked,
    "preempted by swap": preempted_by_swap,
    "preempted by recompute": preempted_by_recompute,
    "squeezed": squeezed,
}
