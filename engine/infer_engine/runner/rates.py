"""How fast this runner prefills, and moves blocks to host memory and back: what preemption costs here."""

from collections.abc import Callable

from msgspec.structs import replace

from infer_engine.core.plan import Chunk, Plan
from infer_engine.core.request import Request
from infer_engine.runner.runner import Runner, RunnerInfo

#: Tokens prefilled and blocks moved to measure it, at most.
TOKENS = 64
BLOCKS = 32
#: The fastest of so many tries counts: the first pays for what is set up once.
TRIES = 3


def measured(runner: Runner, clock: Callable[[], float]) -> RunnerInfo:
    """The runner's info with both rates by ``clock`` (seconds). It writes to blocks of the pool, so nobody
    may own any yet. A simulated runner takes no time that could be measured: its info stays as it is."""
    info = runner.info
    if info.simulated:
        return info
    tokens = min(TOKENS, info.kv_blocks * info.block_size, info.context_length - 1)
    prefill_s = _fastest_s(lambda: runner.execute(_prefill(tokens, info)), clock)
    return replace(
        info,
        prefill_tokens_per_s=tokens / prefill_s,
        swap_bytes_per_s=_swap_bytes_per_s(runner, clock),
    )


def _swap_bytes_per_s(runner: Runner, clock: Callable[[], float]) -> float | None:
    info = runner.info
    blocks = min(BLOCKS, info.kv_blocks, info.host_blocks)
    if blocks < 1:
        return None
    moves = [(block, block) for block in range(blocks)]

    def there_and_back() -> None:
        for plan in (Plan(step=0, swap_out=moves), Plan(step=0, swap_in=moves)):
            # A token, since that is waited for: a device may move blocks while we go on.
            plan.chunks = _prefill(1, info).chunks
            runner.execute(plan)

    one_token_s = _fastest_s(lambda: runner.execute(_prefill(1, info)), clock)
    moves_s = _fastest_s(there_and_back, clock) - 2 * one_token_s
    moved_bytes = 2 * blocks * info.block_size * info.kv_bytes_per_token
    return moved_bytes / moves_s if moves_s > 0 else None


def _prefill(tokens: int, info: RunnerInfo) -> Plan:
    table = list(range(-(-tokens // info.block_size)))
    request = Request(
        id="measure", prompt=[0] * tokens, max_tokens=1, arrival_s=0.0, block_table=table, sampling=None
    )
    return Plan(step=0, chunks=[Chunk(request, start=0, count=tokens, samples=True)])


def _fastest_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    fastest_s = float("inf")
    for _ in range(TRIES):
        began_s = clock()
        work()
        fastest_s = min(fastest_s, clock() - began_s)
    return max(fastest_s, 1e-9)
