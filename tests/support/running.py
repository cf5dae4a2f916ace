"""Runs requests to their end on a real runner, through the real scheduler."""

from collections.abc import Callable, Iterable

from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.core.swap import HostPool
from infer_engine.model.sampling import Sampling
from infer_engine.runner.load import load_runner
from infer_engine.runner.runner import Runner
from infer_engine.settings import ReplicaSettings

GREEDY = Sampling(temperature=0.0)
MOST_STEPS = 5000


def make_runner(**settings: object) -> Runner:
    return load_runner(ReplicaSettings(**settings), lambda _fraction, _what: None)  # type: ignore[arg-type]


def make_request(
    name: object, prompt: Iterable[int], max_tokens: int = 16, sampling: Sampling = GREEDY
) -> Request:
    return Request(id=str(name), prompt=list(prompt), max_tokens=max_tokens, arrival_s=0.0, sampling=sampling)


def run_all(
    runner: Runner,
    requests: list[Request],
    *,
    token_budget: int = 64,
    max_running: int = 16,
    kv_blocks: int | None = None,
    pool: BlockPool | None = None,
    host: HostPool | None = None,
    prepare: Callable[[Scheduler], None] = lambda _: None,
    before_step: Callable[[Scheduler], None] = lambda _: None,
) -> Scheduler:
    """Run ``requests`` together until all have ended; their outputs are in them. A smaller ``kv_blocks`` than
    the runner's leaves the rest of its pool alone; a ``pool`` of an earlier run keeps what it cached.
    ``prepare`` gets the scheduler before the requests do."""
    pool = pool or BlockPool(kv_blocks or runner.info.kv_blocks, runner.info.block_size)
    blocks = pool.total
    limits = Limits(
        admit_limit=blocks, batch_limit=blocks, max_running=max_running, token_budget=token_budget
    )
    scheduler = Scheduler(pool, limits, runner.info.context_length, host)
    prepare(scheduler)
    for request in requests:
        scheduler.add(request, 0.0)
    for step in range(MOST_STEPS):
        if not scheduler.has_work:
            return scheduler
        before_step(scheduler)
        plan = scheduler.step(float(step))
        scheduler.commit(runner.execute(plan).tokens, float(step))
    raise AssertionError(f"not done after {MOST_STEPS} steps")
