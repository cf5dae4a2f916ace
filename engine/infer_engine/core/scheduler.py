"""Continuous batching: what one replica computes next, decided anew between every two steps.

``step`` plans, the runner executes the plan, ``commit`` takes the tokens back. One counter,
``computed_tokens``, chases prompt and output, so prefill, a chunk of it, decode and recompute are one case.
"""

from typing import Unpack

from infer_engine.core.admission import AdmissionControl
from infer_engine.core.batch import Batch
from infer_engine.core.batch_plan import BatchPlan
from infer_engine.core.blocks import BlockPool
from infer_engine.core.counters import Counters
from infer_engine.core.deadlines import Deadlines
from infer_engine.core.limits import LimitChanges, Limits
from infer_engine.core.plan import Admission, Chunk, Finish, Plan
from infer_engine.core.queues import TIERS, WaitingQueue
from infer_engine.core.refusal import (
    AdmissionClosed,
    DuplicateId,
    Refusal,
    check_fits,
    check_queue,
)
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.protocol import FinishReason, Tier


class CommitError(RuntimeError):
    """The tokens do not belong to the plan: the runner is broken. Nothing was committed."""


class Scheduler:
    """Moments are seconds of any one clock that the caller reads; ``now_s`` decides whose deadline has
    passed, and never who runs."""

    def __init__(
        self, pool: BlockPool, limits: Limits, context_length: int, host: HostPool | None = None
    ) -> None:
        """Without ``host`` all preemption is by recompute."""
        self.pool = pool
        self.host = host or HostPool()
        self.limits = limits.checked(pool.total)
        self.context_length = context_length
        self.waiting = WaitingQueue()
        self.waiting.long_tokens = limits.long_prefill_tokens
        self.admission_open = True
        #: The batch tier is paused.
        self.shed = False
        self.counters = Counters()
        self._batch = Batch(pool, self.host, self.waiting, self.counters)
        self.admission = AdmissionControl(pool, self.waiting, self.host, self._batch.running)
        self._forked: list[Admission] = []
        #: Ids of those to preempt in the next step, in the order in which that was asked for.
        self._asked_to_leave: dict[str, None] = {}
        #: When the last step was committed.
        self.last_step_s: float | None = None
        self._live: dict[str, Request] = {}
        self._deadlines = Deadlines(self._live)
        self._planned: Plan | None = None

    @property
    def has_work(self) -> bool:
        """Somebody runs or may come to run: who waits in a tier that is shed does not."""
        return bool(self._live) and (
            not self.shed or bool(self.running) or self.waiting.count("interactive") > 0
        )

    def is_overdue(self, now_s: float) -> bool:
        """While a tier is shed, a step may be due for somebody's deadline alone."""
        return self.shed and bool(self._live) and self._deadlines.have_passed(now_s)

    @property
    def running(self) -> dict[str, Request]:
        """The batch in its order, by id. Read only for others."""
        return self._batch.running

    def get(self, request_id: str) -> Request | None:
        """A waiting or running request."""
        return self._live.get(request_id)

    # --- requests come and go ------------------------------------------------------------------------------

    def add(self, request: Request, now_s: float) -> None:
        """Put a request into the queue; raises a Refusal and keeps nothing of it otherwise."""
        try:
            self._check_can_be_taken(request)
        except Refusal as refusal:
            self.counters.refused[refusal.code] += 1
            raise
        request.state = "waiting"
        # A sequence that continues here did not wait until now: it ran on another replica.
        request.queued_s = now_s if request.output else min(request.arrival_s, now_s)
        request.passed = 0
        request.queued_step = self.counters.steps
        self._live[request.id] = request
        self._deadlines.add(request)
        self.waiting.push(request)

    def _check_can_be_taken(self, request: Request) -> None:
        check_fits(request, self.pool, self.context_length)
        if request.id in self._live:
            raise DuplicateId(f"a request {request.id} is {self._live[request.id].state}")
        if not self.admission_open:
            raise AdmissionClosed("admission is closed: the replica drains")
        # A sequence that continues was taken before, elsewhere: its client reads already.
        if not request.output:
            check_queue(request, self.waiting, self.limits)

    def fork(self, parent_id: str, child: Request, now_s: float) -> None:
        """``add`` a request that begins as a running one does. Where nobody waits and the batch has room it
        joins at once and shares the blocks of what both have in common; the first to write to a shared block
        copies it. Else it waits like any other."""
        self.add(child, now_s)
        parent = self.running.get(parent_id)
        if self.shed and child.tier == "batch":
            return
        if parent is None or parent.cache_salt != child.cache_salt or len(self.waiting) > 1:
            return
        common = min(parent.computed_tokens, child.total_tokens - 1)
        table = parent.block_table[: self.pool.blocks_for(common)]
        fresh = max(0, self.pool.blocks_for(child.total_tokens + 1) - len(table))
        to_compute = child.total_tokens - common
        if parent.tokens(0, common) != child.tokens(0, common) or not self.admission.may_join(
            child, self.limits, table, fresh, to_compute
        ):
            return
        child.block_table = self.pool.allocate_behind(table, fresh) or []
        child.computed_tokens = child.cached_tokens = common
        child.long_prefill = to_compute > self.limits.long_prefill_tokens
        self.waiting.admitted(child, in_turn=True)
        child.indexed_blocks = common // self.pool.block_size
        self._forked.append(self._batch.join(child, now_s))
        self.counters.forks += 1

    def abort(
        self, request_id: str, reason: FinishReason = "cancelled", error: str | None = None
    ) -> Finish | None:
        """End a request wherever it is, its blocks back at once; None if there is none of that id (any
        more). ``error`` is the code of what went wrong with it."""
        request = self._live.get(request_id)
        return None if request is None else self._finish(request, reason, error)

    def close_admission(self) -> list[Request]:
        """Take no more; hand back the queue in order, with what was generated so far. Who runs, runs on, and
        comes back into the batch here when it is preempted."""
        self.admission_open = False
        handed_back = list(self.waiting)
        for request in handed_back:
            self.waiting.remove(request)
            self.host.forget(request)
            del self._live[request.id]
        return handed_back

    def release(self, request_id: str) -> int | None:
        """Let go of a request that goes on elsewhere: it has not ended, and its blocks are back at once. How
        many that are; None if there is none of that id (any more)."""
        request = self._live.get(request_id)
        if request is None:
            return None
        self.counters.released += 1
        return self._forget(request)

    def preempt(self, request_id: str) -> bool:
        """Have the next step preempt a running request, which goes to the head of its tier; that step admits
        nobody. False when it does not run, or fills the pool by now and would never be admitted again."""
        request = self.running.get(request_id)
        if request is None or request not in self._batch.preemptible():
            return False
        self._asked_to_leave[request_id] = None
        return True

    def open_admission(self) -> None:
        self.admission_open = True

    def set_shed(self, on: bool) -> None:
        """Pause the batch tier from the next step on, which preempts what of it runs; or let it go on. Who
        waited so long that it counts as interactive is batch again."""
        self.shed = on
        aged = [each for each in self.waiting.members() if each.aged and each.tier == "batch"] if on else []
        for request in aged:
            self.waiting.remove(request)
            request.aged = False
            self.waiting.push_first(request)

    def _preempt_shed(self, plan: Plan, now_s: float) -> None:
        for request in self._batch.preemptible():
            if request.tier == "batch":
                request.aged = False
                self._batch.preempt(request, plan, now_s)
                plan.yielded += 1

    def _preempt_asked(self, plan: Plan, now_s: float) -> None:
        """Who is to leave on an operator's word."""
        if self.shed:
            self._preempt_shed(plan, now_s)
        for request_id in self._asked_to_leave:
            if request_id in self.running:
                self._batch.preempt(self.running[request_id], plan, now_s, asked=True)
        self._asked_to_leave = {}

    def set_limits(self, **changes: Unpack[LimitChanges]) -> tuple[Limits, Limits]:
        """Change what is given, all of it or (LimitsError) nothing; the next step goes by it. Lowering never
        evicts. Returns the limits before and after."""
        old = self.limits
        new = old.changed(**changes)
        self.limits = new.checked(self.pool.total, len(self.running))
        self.waiting.long_tokens = new.long_prefill_tokens
        return old, new

    @property
    def in_force(self) -> Limits:
        """What admission goes by just now."""
        return self.limits

    # --- a step --------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> Plan:
        """Plan the next step: the running first, then who may join. The plan must be committed before the
        next."""
        if self._planned is not None and self._planned.chunks:
            raise RuntimeError(f"step {self._planned.step} has not been committed")
        self.pool.now_s = now_s
        self.counters.steps += 1
        plan = Plan(step=self.counters.steps, forked=self._forked)
        self._forked = []
        for request in self._deadlines.take_passed(now_s):
            plan.finished.append(self._finish(request, "error", "deadline_exceeded"))
        self._age_batch()
        batch_plan = self._plan_batch(plan, now_s)
        spare = batch_plan.spare
        if len(plan.preempted) > plan.yielded:
            self.admission.hold()
        else:
            # Who has just made room for interactive requests does not come back in the same step.
            only = plan.yielded or self.shed
            spare = self._plan_admitted(plan, spare, now_s, ("interactive",) if only else TIERS)
        batch_plan.top_up(spare)
        plan.evicted = self.pool.take_evicted()
        plan.evicted_hashes = self.pool.take_evicted_hashes()
        self.counters.evicted_blocks += len(plan.evicted)
        self.counters.copied_blocks += len(plan.copies)
        self.counters.swapped_out_blocks += len(plan.swap_out)
        self.counters.swapped_in_blocks += len(plan.swap_in)
        self.counters.decode_tokens += plan.decode_tokens
        self.counters.prefill_tokens += plan.prefill_tokens
        self._planned = plan
        return plan

    def _age_batch(self) -> None:
        """A batch request that waited long enough goes before the interactive ones, one in a step."""
        oldest = None if self.shed else self.waiting.oldest_batch()
        if oldest is not None and self.counters.steps - oldest.queued_step > self.limits.age_steps:
            self.waiting.remove(oldest)
            oldest.aged = True
            self.waiting.push_first(oldest)
            self.counters.aged += 1

    def _plan_batch(self, plan: Plan, now_s: float) -> BatchPlan:
        """The running sequences' part of the plan."""
        self._preempt_asked(plan, now_s)
        batch_plan = BatchPlan(self._batch, self.limits, plan, now_s, self._exhaust)
        batch_plan.fill(self.waiting)
        if not plan.preempted:
            plan.yielded = batch_plan.yield_to(self.admission)
            self.counters.yields += plan.yielded
        for chunk in batch_plan.chunks.values():
            plan.add(chunk)
        return batch_plan

    def _plan_admitted(self, plan: Plan, tokens_left: int, now_s: float, tiers: tuple[Tier, ...]) -> int:
        """Who joins, and what they compute; returns the budget that is left."""
        round_ = self.admission.admit(self.in_force, tokens_left, tiers)
        plan.copies += round_.copies
        plan.swap_in += round_.swap_in
        for request, count in round_.admitted:
            admission = self._batch.join(request, now_s)
            plan.admitted.append(admission)
            self._count_lookup(request, admission.resumed, plan)
            start = request.computed_tokens
            plan.add(Chunk(request, start, count, start + count == request.total_tokens))
        return round_.tokens

    def _count_lookup(self, request: Request, resumed: bool, plan: Plan) -> None:
        """Once per admission, however often the request was looked up while it waited."""
        if not self.pool.index.enabled:
            return
        if resumed:
            self.counters.prefix_requery_tokens += request.total_tokens
            self.counters.prefix_rehit_tokens += request.cached_tokens
            return
        self.counters.prefix_queries_tokens += request.total_tokens
        self.counters.prefix_hit_tokens += request.cached_tokens
        plan.prefix_queries_tokens += request.total_tokens
        plan.prefix_hit_tokens += request.cached_tokens

    def commit(self, tokens: dict[str, int], now_s: float) -> list[Finish]:
        """Take back what the runner computed of the last plan: the next token of each chunk that samples, by
        request id. Who has ended leaves at once. Tokens of requests aborted meanwhile are dropped."""
        plan = self._planned
        if plan is None:
            raise RuntimeError("commit without a plan")
        sampled = {chunk.request.id for chunk in plan.chunks if chunk.samples}
        if sampled != tokens.keys():
            wrong = sorted(sampled ^ tokens.keys())
            raise CommitError(f"step {plan.step}: missing or unasked tokens of {wrong[:8]}")
        self._planned = None
        self.last_step_s = self.pool.now_s = now_s
        finished: list[Finish] = []
        running = self.running
        for chunk in plan.chunks:
            request = chunk.request
            if running.get(request.id) is not request:
                continue
            self._computed(request, chunk.count)
            if not chunk.samples:
                continue
            token = tokens[request.id]
            request.output.append(token)
            request.account.served += 1
            self.counters.generated_tokens += 1
            if token in request.stop_token_ids:
                finished.append(self._finish(request, "stop"))
            elif len(request.output) >= request.max_tokens:
                finished.append(self._finish(request, "length"))
        return finished

    def _computed(self, request: Request, tokens: int) -> None:
        """Blocks that these tokens filled can be found from now on, and not before their KV was written."""
        request.computed_tokens += tokens
        full = request.computed_tokens // self.pool.block_size
        if full > request.indexed_blocks:
            self.pool.index.add(request, request.indexed_blocks, full)
            request.indexed_blocks = full

    def _exhaust(self, request: Request) -> Finish:
        return self._finish(request, "error", "kv_exhausted")

    def _finish(self, request: Request, reason: FinishReason, error: str | None = None) -> Finish:
        """The only way to an end."""
        freed = self._forget(request)
        request.state = "finished"
        request.finish_reason = reason
        request.error = error
        self.counters.finished[reason] += 1
        return Finish(request.id, reason, freed, len(request.output), error)

    def _forget(self, request: Request) -> int:
        """It is here no more; how many blocks that freed."""
        del self._live[request.id]
        if request.state == "running":
            return self._batch.leave(request)
        self.waiting.remove(request)
        self.host.forget(request)
        return 0
