"""What a replica tells of itself: a report of every step, and an observation of a moment between two."""

from collections.abc import Sequence

from infer_engine.core import observe
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Finish, Plan
from infer_engine.core.scheduler import Scheduler
from infer_engine.replica.forks import PendingForks
from infer_engine.replica.messages import (
    Admitted,
    FinishedOut,
    LimitsSet,
    Observation,
    PreemptedOut,
    Prefilled,
    StepReport,
    TokenOut,
)

#: Of the queue so many are told: the rest is a count, so that a long queue costs no more than a short one.
MOST_WAITING_ROWS = 128


class Account:
    def __init__(self, incarnation: int, scheduler: Scheduler, forks: PendingForks, block_bytes: int) -> None:
        self._incarnation = incarnation
        self._scheduler = scheduler
        self._forks = forks
        self._block_bytes = block_bytes

    def report(
        self,
        plan: Plan,
        tokens: list[TokenOut],
        finished: Sequence[Finish],
        duration_s: float,
        violations: int,
    ) -> StepReport:
        """Of a step that was committed; ``violations`` of invariants since the start."""
        pool = self._scheduler.pool
        return StepReport(
            incarnation=self._incarnation,
            step=plan.step,
            duration_s=duration_s,
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting) + len(self._forks),
            decode_tokens=plan.decode_tokens,
            prefill_tokens=plan.prefill_tokens,
            kv_used=pool.used,
            kv_free=pool.free,
            kv_cached=pool.cached,
            invariant_violations=violations,
            tokens=tokens,
            admitted=[
                Admitted(each.id, each.blocks, each.resumed) for each in (*plan.forked, *plan.admitted)
            ],
            preempted=[
                PreemptedOut(each.id, each.mode, each.freed_blocks, each.redo_tokens, each.asked)
                for each in plan.preempted
            ],
            finished=[
                FinishedOut(
                    each.id, each.reason, each.freed_blocks, each.generated_tokens, each.error, each.said
                )
                for each in finished
            ],
            prefills=_prefills(plan) if plan.prefill_tokens else [],
            evicted_blocks=len(plan.evicted),
            evicted_hashes=plan.evicted_hashes,
            prefix_queries_tokens=plan.prefix_queries_tokens,
            prefix_hit_tokens=plan.prefix_hit_tokens,
            swapped_out_bytes=len(plan.swap_out) * self._block_bytes,
            swapped_in_bytes=len(plan.swap_in) * self._block_bytes,
        )

    def observation(self, now_s: float, violations: int, *, blocks: bool) -> Observation:
        """Of this moment, with the block map when ``blocks``."""
        scheduler = self._scheduler
        limits, counters = scheduler.limits, scheduler.counters
        last_s = scheduler.last_step_s
        reasons = scheduler.admission.reason_counts()
        if self._forks:
            reasons["behind"] = reasons.get("behind", 0) + len(self._forks)
        return Observation(
            incarnation=self._incarnation,
            step=counters.steps,
            kv_used=scheduler.pool.used,
            kv_free=scheduler.pool.free,
            kv_cached=scheduler.pool.cached,
            admission_open=scheduler.admission_open,
            step_age_s=None if last_s is None else now_s - last_s,
            waiting_reasons=reasons,
            preemptions=counters.preemptions,
            invariant_violations=violations,
            rows=observe.rows(scheduler, MOST_WAITING_ROWS) + self._forks.rows(),
            waiting=len(scheduler.waiting) + len(self._forks),
            blocks=observe.block_map(scheduler, now_s) if blocks else None,
            admit_limit=limits.admit_limit,
            batch_limit=limits.batch_limit,
            max_running=limits.max_running,
            slots=scheduler.in_force.max_running,
            token_budget=limits.token_budget,
            limits=limits.by_name(),
            tenant_default=limits.tenant_default,
            tenants=dict(limits.tenants),
            host_used=scheduler.host.used,
            host_total=scheduler.host.total,
            preemptions_by_mode={
                "swap": counters.swaps,
                "recompute": counters.preemptions - counters.swaps,
            },
            swapped_out_bytes=counters.swapped_out_blocks * self._block_bytes,
            swapped_in_bytes=counters.swapped_in_blocks * self._block_bytes,
        )


def _prefills(plan: Plan) -> list[Prefilled]:
    """The last token of a prompt may be a chunk of its own; any other single token is a decode."""
    return [
        Prefilled(chunk.request.id, chunk.count)
        for chunk in plan.chunks
        if chunk.count > 1 or chunk.start < len(chunk.request.prompt)
    ]


def limits_set(incarnation: int, call: int, old: Limits, new: Limits) -> LimitsSet:
    """The answer to a change of limits that was made."""
    return LimitsSet(incarnation=incarnation, call=call, old=old.by_name(), new=new.by_name())
