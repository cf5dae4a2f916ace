"""Continuous batching: what one replica computes next, decided anew between every two steps.

``step`` plans, the runner executes the plan, ``commit`` takes the tokens back. One counter,
``computed_tokens``, chases prompt and output, so prefill, a chunk of it, decode and recompute are one case.
"""

from infer_engine.core.admission import AdmissionControl
from infer_engine.core.blocks import BlockPool
from infer_engine.core.counters import Counters
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Admission, Chunk, Finish, Plan, Preemption
from infer_engine.core.queues import TIERS, WaitingQueue
from infer_engine.core.refusal import (
    AdmissionClosed,
    DuplicateId,
    QueueFull,
    Refusal,
    check_fits,
)
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.protocol import FinishReason, Tier


class CommitError(RuntimeError):
    """The tokens do not belong to the plan: the runner is broken. Nothing was committed."""


class Scheduler:
    """Moments are seconds of any one clock that the caller reads; ``now_s`` never decides who runs."""

    def __init__(
        self, pool: BlockPool, limits: Limits, context_length: int, host: HostPool | None = None
    ) -> None:
        """Without ``host`` all preemption is by recompute."""
        self.pool = pool
        self.host = host or HostPool()
        self.limits = limits.checked(pool.total)
        self.context_length = context_length
        self.waiting = WaitingQueue()
        #: The batch in its order, by id.
        self.running: dict[str, Request] = {}
        self.admission = AdmissionControl(pool, self.waiting, self.host)
        self.admission_open = True
        self._forked: list[Admission] = []
        self.counters = Counters()
        #: When the last step was committed.
        self.last_step_s: float | None = None
        self._live: dict[str, Request] = {}
        self._planned: Plan | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._live)

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
        self.waiting.push(request)

    def _check_can_be_taken(self, request: Request) -> None:
        check_fits(request, self.pool, self.context_length)
        if request.id in self._live:
            raise DuplicateId(f"a request {request.id} is {self._live[request.id].state}")
        if not self.admission_open:
            raise AdmissionClosed("admission is closed: the replica drains")
        if len(self.waiting) >= self.limits.max_waiting:
            raise QueueFull(
                f"{len(self.waiting)} requests wait, {self.limits.max_waiting} may",
                waiting=len(self.waiting),
                max_waiting=self.limits.max_waiting,
            )
        tokens = self.waiting.tokens + request.total_tokens
        # An empty queue takes any request: one longer than the bound would never be taken otherwise.
        if len(self.waiting) and tokens > self.limits.max_waiting_tokens:
            raise QueueFull(
                f"{self.waiting.tokens} tokens wait, with this request's {request.total_tokens} it would be "
                f"{tokens}, {self.limits.max_waiting_tokens} may",
                waiting_tokens=self.waiting.tokens,
                request_tokens=request.total_tokens,
                max_waiting_tokens=self.limits.max_waiting_tokens,
            )

    def fork(self, parent_id: str, child: Request, now_s: float) -> None:
        """``add`` a request that begins as a running one does. Where nobody waits and the batch has room it
        joins at once and shares the blocks of what both have in common; the first to write to a shared block
        copies it. Else it waits like any other."""
        self.add(child, now_s)
        parent = self.running.get(parent_id)
        if parent is None or parent.cache_salt != child.cache_salt or len(self.waiting) > 1:
            return
        common = min(parent.computed_tokens, child.total_tokens - 1)
        table = parent.block_table[: self.pool.blocks_for(common)]
        fresh = max(0, self.pool.blocks_for(child.total_tokens + 1) - len(table))
        if (
            parent.tokens(0, common) != child.tokens(0, common)
            or len(self.running) >= self.limits.max_running
            or self.pool.used + fresh > self.limits.mark(child.lane)
            or fresh > self.pool.available
        ):
            return
        self.waiting.remove(child)
        child.block_table = self.pool.allocate_behind(table, fresh) or []
        child.computed_tokens = child.cached_tokens = common
        child.indexed_blocks = common // self.pool.block_size
        self._forked.append(self._join(child, now_s))
        self.counters.forks += 1

    def abort(self, request_id: str, reason: FinishReason = "cancelled") -> Finish | None:
        """End a request wherever it is, its blocks back at once; None if there is none of that id (any
        more)."""
        request = self._live.get(request_id)
        return None if request is None else self._finish(request, reason)

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

    def open_admission(self) -> None:
        self.admission_open = True

    def set_limits(
        self,
        *,
        admit_limit: int | None = None,
        batch_limit: int | None = None,
        max_running: int | None = None,
        token_budget: int | None = None,
        max_waiting: int | None = None,
        max_waiting_tokens: int | None = None,
        max_passes: int | None = None,
        age_steps: int | None = None,
    ) -> tuple[Limits, Limits]:
        """Change what is given, all of it or (LimitsError) nothing; the next step goes by it. Lowering never
        evicts. Returns the limits before and after."""
        old = self.limits
        new = old.changed(
            admit_limit=admit_limit,
            batch_limit=batch_limit,
            max_running=max_running,
            token_budget=token_budget,
            max_waiting=max_waiting,
            max_waiting_tokens=max_waiting_tokens,
            max_passes=max_passes,
            age_steps=age_steps,
        )
        self.limits = new.checked(self.pool.total, len(self.running))
        return old, new

    # --- a step --------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> Plan:
        """Plan the next step: the running first, then who may join. The plan must be committed before the
        next."""
        if self._planned is not None and self._planned.chunks:
            raise RuntimeError(f"step {self._planned.step} has not been committed")
        self.counters.steps += 1
        plan = Plan(step=self.counters.steps, forked=self._forked)
        self._forked = []
        self._age_batch()
        tokens_left = self._plan_running(plan, now_s)
        if len(plan.preempted) > plan.yielded:
            self.admission.hold()
        else:
            # Who has just made room for interactive requests does not come back in the same step.
            self._plan_admitted(plan, tokens_left, now_s, ("interactive",) if plan.yielded else TIERS)
        plan.evicted = self.pool.take_evicted()
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
        oldest = self.waiting.oldest_batch()
        if oldest is not None and self.counters.steps - oldest.queued_step > self.limits.age_steps:
            self.waiting.remove(oldest)
            oldest.aged = True
            self.waiting.push_first(oldest)
            self.counters.aged += 1

    def _yield_to_interactive(self, chunks: dict[str, Chunk], plan: Plan, now_s: float) -> int:
        """Batch leaves the moment an interactive request can run in its place; returns the budget that it
        gives back."""
        refund = 0
        head = self.waiting.first("interactive")
        if head is None or self.admission.fits(head, self.limits, len(self.running)):
            return refund
        batch = [request for request in self._preemptible() if request.lane == "batch"]
        if not batch or not self.admission.would_fit(head, self.limits, len(self.running), batch):
            return refund
        while not self.admission.fits(head, self.limits, len(self.running)):
            refund += self._take_out(_least_important(self._preemptible()), chunks, plan, now_s)
            plan.yielded += 1
        self.counters.yields += plan.yielded
        return refund

    def _plan_running(self, plan: Plan, now_s: float) -> int:
        """Give every decoding sequence its token and the prefills, in batch order, the rest; returns what is
        left."""
        chunks: dict[str, Chunk] = {}
        decoding = sum(not request.is_prefilling for request in self.running.values())
        #: Tokens for prefill chunks. What the decoding need was set aside beforehand, so no chunk can starve
        #: them.
        spare = self.limits.token_budget - decoding
        for request in list(self.running.values()):
            if request.state != "running":
                continue  # preempted for an earlier one
            missing = request.total_tokens - request.computed_tokens
            count = 1 if missing == 1 else min(missing, spare)
            if count < 1:
                continue
            spare += self._make_room(request, request.computed_tokens + count, chunks, plan, now_s)
            if request.state == "running":
                chunks[request.id] = Chunk(request, request.computed_tokens, count, count == missing)
                spare -= count if missing > 1 else 0
        if not plan.preempted:
            spare += self._yield_to_interactive(chunks, plan, now_s)
        for chunk in chunks.values():
            self._add_chunk(plan, chunk)
        return spare

    def _make_room(
        self, request: Request, tokens: int, chunks: dict[str, Chunk], plan: Plan, now_s: float
    ) -> int:
        """Grow the block table to ``tokens`` tokens and make the block writable that the next token goes to,
        preempting for it whoever matters least, ``request`` itself included. Returns the budget that the
        preempted give back; afterwards ``request`` may not run any more."""
        refund = 0
        while (grows := len(request.block_table) * self.pool.block_size < tokens) or self._must_copy(request):
            block = self.pool.allocate(1)
            if block is not None and grows:
                request.block_table += block
                continue
            if block is not None:
                self._replace_next(request, block[0], plan)
                continue
            candidates = self._preemptible()
            if not candidates:
                plan.finished.append(self._finish(request, "error", "kv_exhausted"))
                refund += 1
                break
            victim = _least_important(candidates)
            refund += self._take_out(victim, chunks, plan, now_s)
            if victim is request:
                break
        return refund

    def _must_copy(self, request: Request) -> bool:
        number = request.computed_tokens // self.pool.block_size
        return number < len(request.block_table) and not self.pool.is_writable(request.block_table[number])

    def _replace_next(self, request: Request, block: int, plan: Plan) -> None:
        """Let the next token go to ``block``, a copy of where it would have gone."""
        number = request.computed_tokens // self.pool.block_size
        shared = request.block_table[number]
        # The table may be named by others that share it.
        request.block_table = [*request.block_table[:number], block, *request.block_table[number + 1 :]]
        self.pool.release([shared])
        plan.copies.append((shared, block))

    def _preemptible(self) -> list[Request]:
        """Who may be preempted: a sequence that fills the pool by now would never be admitted again."""
        return [
            request
            for request in self.running.values()
            if self.pool.blocks_for(request.total_tokens + 1) <= self.pool.total
        ]

    def _take_out(self, victim: Request, chunks: dict[str, Chunk], plan: Plan, now_s: float) -> int:
        """Preempt; returns the budget that it gives back."""
        refund = 0
        chunk = chunks.pop(victim.id, None)
        if chunk is not None:
            refund += chunk.count
        elif not victim.is_prefilling:
            refund += 1  # set aside for it, not used yet
        plan.preempted.append(self._preempt(victim, plan, now_s))
        return refund

    def _preempt(self, victim: Request, plan: Plan, now_s: float) -> Preemption:
        """Take the blocks; the tokens stay, and their KV is moved to the host, or computed again after the
        next admission."""
        lost = set(victim.block_table)
        copies = [copy for copy in plan.copies if copy[1] not in lost]
        computed = victim.block_table[: self.pool.blocks_for(victim.computed_tokens)]
        # What this step was to copy into its blocks is not there yet.
        swap = len(copies) == len(plan.copies)
        swap = swap and self.host.prefers_swap(len(computed), victim.computed_tokens)
        if swap:
            plan.swap_out += self.host.move_out(victim, computed)
        plan.copies = copies
        preemption = Preemption(
            id=victim.id,
            mode="swap" if swap else "recompute",
            freed_blocks=self.pool.release(victim.block_table),
            redo_tokens=0 if swap else victim.computed_tokens,
        )
        del self.running[victim.id]
        victim.block_table = []
        victim.indexed_blocks = 0
        victim.computed_tokens = victim.cached_tokens = 0
        victim.state = "waiting"
        victim.preemptions += 1
        victim.queued_s = now_s
        victim.queued_step = self.counters.steps
        self.waiting.push_first(victim)
        self.counters.preemptions += 1
        self.counters.swaps += swap
        self.counters.redo_tokens += preemption.redo_tokens
        return preemption

    def _plan_admitted(self, plan: Plan, tokens_left: int, now_s: float, tiers: tuple[Tier, ...]) -> None:
        round_ = self.admission.admit(self.limits, len(self.running), tokens_left, tiers)
        plan.copies += round_.copies
        plan.swap_in += round_.swap_in
        for request, count in round_.admitted:
            admission = self._join(request, now_s)
            plan.admitted.append(admission)
            self._count_lookup(request, admission.resumed, plan)
            start = request.computed_tokens
            self._add_chunk(plan, Chunk(request, start, count, start + count == request.total_tokens))

    def _join(self, request: Request, now_s: float) -> Admission:
        """Into the batch; it has its blocks."""
        request.state = "running"
        if request.admitted_s is None:
            request.admitted_s = now_s
        self.running[request.id] = request
        resumed = request.preemptions > 0 or bool(request.output)
        self.counters.admissions += 1
        self.counters.resumptions += resumed
        return Admission(
            id=request.id,
            blocks=len(request.block_table),
            waited_s=max(0.0, now_s - request.queued_s),
            resumed=resumed,
            cached_tokens=request.cached_tokens,
        )

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

    def _add_chunk(self, plan: Plan, chunk: Chunk) -> None:
        plan.chunks.append(chunk)
        if chunk.request.is_prefilling:
            plan.prefill_tokens += chunk.count
        else:
            plan.decode_tokens += chunk.count

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
        self.last_step_s = now_s
        finished: list[Finish] = []
        for chunk in plan.chunks:
            request = chunk.request
            if self.running.get(request.id) is not request:
                continue
            self._computed(request, chunk.count)
            if not chunk.samples:
                continue
            token = tokens[request.id]
            request.output.append(token)
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

    def _finish(self, request: Request, reason: FinishReason, error: str | None = None) -> Finish:
        """The only way out. The block table stays as it was: a plan under way may name it, and its blocks are
        handed out again by the next step at the earliest."""
        freed = 0
        if request.state == "running":
            del self.running[request.id]
            freed = self.pool.release(request.block_table)
        else:
            self.waiting.remove(request)
            self.host.forget(request)
        del self._live[request.id]
        request.state = "finished"
        request.finish_reason = reason
        request.error = error
        self.counters.finished[reason] += 1
        return Finish(request.id, reason, freed, len(request.output), error)


def _least_important(requests: list[Request]) -> Request:
    """Batch before interactive, then the lowest priority, then the latest to arrive, then the last in the
    batch."""
    return max(
        reversed(requests),
        key=lambda request: (request.lane == "batch", -request.priority, request.arrival_s),
    )
