"""What one step computes of the running sequences, while it is being decided."""

from collections.abc import Callable

from infer_engine.core.admission import AdmissionControl
from infer_engine.core.batch import Batch, least_important
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Chunk, Finish, Plan
from infer_engine.core.queues import WaitingQueue
from infer_engine.core.request import Request


class BatchPlan:
    """``plan`` is told at once of preemptions, copies and ends, and of ``chunks`` by who made this."""

    def __init__(
        self, batch: Batch, limits: Limits, plan: Plan, now_s: float, exhaust: Callable[[Request], Finish]
    ) -> None:
        """``exhaust`` ends a request for which there is no block."""
        self.chunks: dict[str, Chunk] = {}
        #: Those of long prompts that were cut short for the sake of short ones.
        self.cut: list[Chunk] = []
        #: Tokens for prefill chunks. What the decoding need was set aside beforehand, so no chunk can starve
        #: them.
        self.spare = limits.token_budget
        self._batch = batch
        self._limits = limits
        self._plan = plan
        self._now_s = now_s
        self._exhaust = exhaust

    def fill(self, waiting: WaitingQueue) -> None:
        """Give every decoding sequence its token and the prefills, in batch order, the rest. Where short
        prompts prefill, or requests wait, long ones get half of it together (see ``top_up``)."""
        running = list(self._batch.running.values())
        prefilling = [request for request in running if request.is_prefilling]
        self.spare -= len(running) - len(prefilling)
        shorts_run = any(not request.long_prefill for request in prefilling)
        for_long = (self.spare + 1) // 2
        for request in running:
            if request.state != "running":
                continue  # preempted for an earlier one
            missing = request.total_tokens - request.computed_tokens
            count = 1 if missing == 1 else min(missing, self.spare)
            halved = missing > 1 and request.long_prefill and (shorts_run or waiting.has_any(request.lane))
            if halved:
                count = min(count, for_long)
            if count < 1:
                continue
            self._make_room(request, request.computed_tokens + count)
            if request.state == "running":
                chunk = Chunk(request, request.computed_tokens, count, count == missing)
                self.chunks[request.id] = chunk
                self.spare -= count if missing > 1 else 0
                if halved:
                    for_long -= count
                    self.cut.append(chunk)

    def top_up(self, spare: int) -> None:
        """Give long prompts back what nobody else took of the step's budget. Their blocks are there since
        they were admitted."""
        for chunk in self.cut:
            if self.chunks.get(chunk.request.id) is not chunk:
                continue  # preempted
            missing = chunk.request.total_tokens - chunk.start
            more = min(missing - chunk.count, spare)
            self._plan.extend(chunk, more, samples=chunk.count + more == missing)
            spare -= more

    def yield_to(self, admission: AdmissionControl) -> int:
        """Batch leaves the moment an interactive request can run in its place; returns how many left."""
        running, limits = self._batch.running, self._limits
        if not any(request.lane == "batch" for request in running.values()):
            return 0
        head = admission.next_for("interactive", limits)
        if head is None or admission.fits(head, limits, len(running)):
            return 0
        batch = [request for request in self._batch.preemptible() if request.lane == "batch"]
        if not batch or not admission.would_fit(head, limits, len(running), batch):
            return 0
        left = 0
        # Blocks that are given up need not be free at once: a server of others says when they are.
        while batch and not admission.fits(head, limits, len(running)):
            self._take_out(least_important(batch))
            left += 1
            batch = [request for request in self._batch.preemptible() if request.lane == "batch"]
        return left

    def _make_room(self, request: Request, tokens: int) -> None:
        """Grow the block table to ``tokens`` tokens and make the block writable that the next token goes to,
        preempting for it whoever matters least, ``request`` itself included: afterwards it may not run any
        more."""
        batch = self._batch
        pool = batch.pool
        while (grows := len(request.block_table) * pool.block_size < tokens) or batch.must_copy(request):
            block = pool.allocate(1)
            if block is not None and grows:
                request.block_table += block
                continue
            if block is not None:
                batch.replace_next(request, block[0], self._plan)
                continue
            candidates = batch.preemptible()
            if not candidates:
                self._plan.finished.append(self._exhaust(request))
                self.spare += 1
                return
            victim = least_important(candidates)
            self._take_out(victim)
            if victim is request:
                return

    def _take_out(self, victim: Request) -> None:
        """Preempt; the budget that it was given goes back."""
        chunk = self.chunks.pop(victim.id, None)
        if chunk is not None:
            self.spare += chunk.count
        elif not victim.is_prefilling:
            self.spare += 1  # set aside for it, not used yet
        self._batch.preempt(victim, self._plan, self._now_s)
