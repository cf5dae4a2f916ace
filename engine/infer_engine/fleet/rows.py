"""Requests as rows: the server's side of a request (tenant, times, labels) joined with its replica's."""

from msgspec import structs

from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import FinishReason, Phase, RequestRow
from infer_engine.replica.messages import CoreRow


def live_row(request: Tracked, now_s: float) -> RequestRow:
    """As the newest message about it has it, whatever kind of message that was."""
    row = _timed(request, now_s)
    core = request.core
    if core is not None and core.state == request.state:
        row = observed_row(row, core)
    generated = len(request.generation.emitted)
    return structs.replace(
        row,
        state=request.state,
        phase=_phase(request),
        generated_tokens=generated,
        kv_blocks=request.blocks,
        waiting_reason=request.held_because or row.waiting_reason,
    )


def observed_row(row: RequestRow, core: CoreRow) -> RequestRow:
    """``row`` (live or a tombstone) as of the observation that ``core`` is from."""
    return structs.replace(
        row,
        state=core.state,
        phase=core.phase,
        generated_tokens=core.generated_tokens,
        computed_tokens=core.computed_tokens,
        cached_tokens=core.cached_tokens,
        kv_blocks=core.kv_blocks,
        preemptions=core.preemptions,
        waiting_reason=core.waiting_reason,
        behind=core.behind,
        needs_blocks=core.needs_blocks,
        admissible_blocks=core.admissible_blocks,
        finish_reason=None,
        ended_at=None,
    )


def frame_row(request: Tracked, core: CoreRow, now_s: float) -> RequestRow:
    return observed_row(_timed(request, now_s), core)


def tombstone(request: Tracked, reason: FinishReason, now_s: float, at: float) -> RequestRow:
    """The row that stays when it ended; its age is the time it took. ``at`` is now in Unix seconds."""
    row = _timed(request, now_s)
    core = request.core
    return structs.replace(
        row,
        state="finished",
        finish_reason=reason,
        ended_at=at,
        generated_tokens=len(request.generation.emitted),
        computed_tokens=core.computed_tokens if core else 0,
        cached_tokens=core.cached_tokens if core else 0,
        preemptions=request.generation.preemptions,
    )


def _phase(request: Tracked) -> Phase | None:
    if request.state != "running":
        return None
    if request.core is not None and request.core.state == "running" and not request.is_prefilled:
        return request.core.phase
    return "decode" if request.is_prefilled else "prefill"


def _timed(request: Tracked, now_s: float) -> RequestRow:
    generation = request.generation
    spec, times = generation.spec, generation.emitted_s
    admitted_s = generation.admitted_s
    return RequestRow(
        id=generation.id,
        tenant=spec.tenant,
        tier=spec.tier,
        replica=generation.replica,
        state="waiting",
        prompt_tokens=len(spec.prompt),
        max_tokens=spec.max_tokens,
        age_s=now_s - generation.arrived_s,
        # Still waiting counts with what it waited so far.
        queue_wait_s=(now_s if admitted_s is None else admitted_s) - generation.arrived_s,
        ttft_s=times[0] - generation.arrived_s if times else None,
        last_itl_s=times[-1] - times[-2] if len(times) > 1 else None,
        preemptions=generation.preemptions,
        moves=generation.moves,
        bound=request.is_bound,
        synthetic=spec.synthetic,
        client_id=spec.client_id,
    )
