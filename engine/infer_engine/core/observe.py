"""What an operator sees of one replica: the batch, the queue with its reasons, and who holds which block.

Built only when somebody looks. One pass over the requests and one over the pool.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import compress, count, islice
from operator import is_not

from msgspec import UNSET, Struct

from infer_engine.core.blocks import BlockPool
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.counts import Count
from infer_engine.protocol import IDLE_STEPS_S, BlockRun, Phase, RequestState, WaitingReason

_QUARTERS = 4
_LONGEST_FIRST = IDLE_STEPS_S[:0:-1]
_Mark = int | tuple[str, ...]


class CoreRow(Struct, frozen=True, array_like=True, gc=False):
    """What only the replica knows of a request; the server adds tenant, times and labels."""

    id: str
    state: RequestState
    phase: Phase | None
    computed_tokens: Count
    cached_tokens: Count
    generated_tokens: Count
    kv_blocks: Count
    preemptions: Count
    waiting_reason: WaitingReason | None = None
    behind: str | None = None
    needs_blocks: Count | None = None
    admissible_blocks: Count | None = None


def rows(scheduler: Scheduler, max_waiting: int | None = None) -> list[CoreRow]:
    """Running requests in batch order, then waiting ones in admission order (the first ``max_waiting`` of
    them)."""
    running = [_running_row(request) for request in scheduler.running.values()]
    waiting = islice(scheduler.admission.in_order(), max_waiting)
    return running + [_waiting_row(scheduler, request) for request in waiting]


def _running_row(request: Request) -> CoreRow:
    return CoreRow(
        id=request.id,
        state="running",
        phase="prefill" if request.is_prefilling else "decode",
        computed_tokens=request.computed_tokens,
        cached_tokens=request.cached_tokens,
        generated_tokens=len(request.output),
        kv_blocks=len(request.block_table),
        preemptions=request.preemptions,
    )


def _waiting_row(scheduler: Scheduler, request: Request) -> CoreRow:
    reason, behind = scheduler.admission.reason(request)
    return CoreRow(
        id=request.id,
        state="waiting",
        phase=None,
        computed_tokens=0,
        cached_tokens=0,
        generated_tokens=len(request.output),
        kv_blocks=0,
        preemptions=request.preemptions,
        waiting_reason=reason,
        behind=behind,
        needs_blocks=scheduler.admission.needs(request),
        admissible_blocks=0
        if scheduler.shed and request.lane == "batch"
        else scheduler.admission.admissible(scheduler.limits, request.lane, len(scheduler.running)),
    )


class BlockMap(Struct, frozen=True, array_like=True, gc=False):
    """The whole pool as it is known to the scheduler. Reading ``block_runs`` off it takes longer than copying
    and sending it, so that is left to whoever looks."""

    #: Holders of each block. Of one that is cached -1 to -4, by the quarter of those that are which goes
    #: first, -1, to last; 4 less for each of IDLE_STEPS_S that it has been idle for, where that is known.
    refs: list[int]
    #: Of every running request, in batch order.
    tables: list[tuple[str, list[Count]]]


def block_map(scheduler: Scheduler, now_s: float | None = None) -> BlockMap:
    """A copy: what the scheduler does next does not show in it. ``now_s`` by the scheduler's clock; without
    it nobody learns for how long blocks have been idle."""
    refs = scheduler.pool.ref_counts[:]
    first_to_go = list(scheduler.pool.cached_blocks)
    for mark, start, end in _cached_marks(scheduler.pool, first_to_go, now_s):
        for block in first_to_go[start:end]:
            refs[block] = mark
    return BlockMap(refs, [(request.id, request.block_table[:]) for request in scheduler.running.values()])


def _cached_marks(
    pool: BlockPool, first_to_go: list[int], now_s: float | None
) -> Iterator[tuple[int, int, int]]:
    """The marks of the cached blocks, and which places of ``first_to_go`` have each."""
    quarter = max(1, -(-len(first_to_go) // _QUARTERS))
    ends = {*range(quarter, len(first_to_go), quarter), len(first_to_go)}
    idle_ends: list[int] = []
    if now_s is not None:  # who is let go comes last, so they are in order
        let_go_s = pool.cached_blocks.__getitem__
        idle_ends = [bisect_right(first_to_go, now_s - step_s, key=let_go_s) for step_s in _LONGEST_FIRST]
    start = 0
    for end in sorted(ends.union(idle_ends)):
        if end > start:
            steps = 0 if now_s is None else len(IDLE_STEPS_S) - bisect_right(idle_ends, start)
            yield -(start // quarter + 1 + _QUARTERS * steps), start, end
            start = end


def block_runs(of: BlockMap) -> list[BlockRun]:
    """Neighbours with equal state, owners and reference count merged; owners in batch order."""
    refs, marks = of.refs, _marks(of)
    starts = [0, *compress(count(1), map(is_not, marks, islice(marks, 1, None)))]
    ends = [*islice(starts, 1, None), len(marks)]
    return [
        BlockRun(
            first=start,
            count=end - start,
            state="cached" if refs[start] < 0 else "used" if refs[start] else "free",
            owners=_owners(marks[start]),
            refs=max(0, refs[start]),
            evict_quarter=(-refs[start] - 1) % _QUARTERS + 1 if refs[start] < 0 else UNSET,
            idle_s=_IDLE_S.get((-refs[start] - 1) // _QUARTERS, UNSET) if refs[start] < 0 else UNSET,
        )
        for start, end in zip(starts, ends, strict=True)
    ]


#: By how many steps are in a cached block's mark; none where it is not known.
_IDLE_S = dict(enumerate(IDLE_STEPS_S, start=1))
#: For every count and mark one object that equals it, whose place in the list is its value.
_SAME = [*range(1024), *range(-_QUARTERS * (1 + len(IDLE_STEPS_S)), 0)]


def _owners(mark: _Mark) -> tuple[str, ...]:
    return () if isinstance(mark, int) else mark


def _marks(of: BlockMap) -> list[_Mark]:
    """Of every block its owners, or its count where it has none. Of blocks that are alike it is the same
    object: whether two neighbours are one object is told faster than whether they are equal."""
    marks: list[_Mark]
    try:
        marks = [*map(_SAME.__getitem__, of.refs)]
    except IndexError:  # a block with that many holders
        marks = [*map({each: each for each in of.refs}.__getitem__, of.refs)]
    shared: dict[int, tuple[str, ...]] = {}
    for owner, table in of.tables:
        alone = (owner,)
        for block in table:
            mark = marks[block]
            if mark == 1:
                marks[block] = alone
            else:  # others hold it too, or its count is wrong
                shared[block] = (*shared.get(block, _owners(mark)), owner)
    alike: dict[tuple[int, tuple[str, ...]], tuple[str, ...]] = {}
    for block, owners in shared.items():
        marks[block] = alike.setdefault((of.refs[block], owners), owners)
    return marks
