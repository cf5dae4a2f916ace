"""What an operator sees of one replica: the batch, the queue with its reasons, and who holds which block.

Built only when somebody looks. One pass over the requests and one over the pool.
"""

from itertools import compress, count, islice
from operator import ne, or_

from msgspec import Struct

from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.protocol import BlockRun, Phase, RequestState, WaitingReason

_CACHED = -1


class CoreRow(Struct, frozen=True, array_like=True, gc=False):
    """What only the replica knows of a request; the server adds tenant, times and labels."""

    id: str
    state: RequestState
    phase: Phase | None
    computed_tokens: int
    cached_tokens: int
    generated_tokens: int
    kv_blocks: int
    preemptions: int
    waiting_reason: WaitingReason | None = None
    behind: str | None = None
    needs_blocks: int | None = None
    admissible_blocks: int | None = None


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
        admissible_blocks=scheduler.admission.admissible(
            scheduler.limits, request.lane, len(scheduler.running)
        ),
    )


def block_runs(scheduler: Scheduler) -> list[BlockRun]:
    """The whole pool, neighbours with equal state, owners and reference count merged; owners in batch
    order."""
    owners: list[tuple[str, ...]] = [()] * scheduler.pool.total
    for request in scheduler.running.values():
        alone = (request.id,)
        for block in request.block_table:
            owners[block] = owners[block] + alone if owners[block] else alone
    # The cached are told apart from the free by a count that no block can have.
    refs = scheduler.pool.ref_counts[:]
    for block in scheduler.pool.cached_blocks:
        refs[block] = _CACHED
    changes = map(or_, map(ne, owners, islice(owners, 1, None)), map(ne, refs, islice(refs, 1, None)))
    starts = [0, *compress(count(1), changes)]
    ends = [*starts[1:], len(owners)]
    return [
        BlockRun(
            first=start,
            count=end - start,
            state="cached" if refs[start] == _CACHED else "used" if refs[start] else "free",
            owners=owners[start],
            refs=max(0, refs[start]),
        )
        for start, end in zip(starts, ends, strict=True)
    ]
