"""Admission before a server that batches by itself: who is sent there next, and why everybody else waits.

The queue, the tiers, the tenants' turns, the marks and the limits are those of our own scheduler. Only the
step is not: what the server computes, and when, is its own affair, and tokens are taken as they come.
"""

from infer_engine.core.batch_plan import BatchPlan
from infer_engine.core.limits import Limits
from infer_engine.core.plan import Chunk, Finish, Plan
from infer_engine.core.queues import TIERS
from infer_engine.core.reported_pool import ReportedPool
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.protocol import FinishReason

#: The server has a budget of its own, which we do not know: as many tokens go there as fit.
NO_BUDGET = 1 << 40
#: What counts as a step where something is said in steps: about as long as one takes.
STEP_S = 0.05


class Dispatcher(Scheduler):
    """``step`` is a round of admission: its plan says who is to be sent there and who is taken back.
    ``token`` and ``ended`` say what comes of them."""

    def __init__(self, pool: ReportedPool, limits: Limits, context_length: int) -> None:
        super().__init__(pool, limits, context_length)
        self._books = pool
        #: The server takes nothing just now, by its own word or for want of one.
        self.held_back = False
        #: So many run at once there, as it shows; None: as many as ``limits`` allow.
        self.slots: int | None = None

    @property
    def in_force(self) -> Limits:
        if self.slots is None or self.slots >= self.limits.max_running:
            return self.limits
        return self.limits.changed(max_running=self.slots)

    def decoding(self) -> int:
        """Those that run there for certain: a token has come of each."""
        return sum(not each.is_prefilling for each in self.running.values())

    def fork(self, parent_id: str, child: Request, now_s: float) -> None:
        """A request like any other: what two of them share there is the server's affair."""
        self.add(child, now_s)

    def step(self, now_s: float) -> Plan:
        self.counters.steps += 1
        plan = Plan(step=self.counters.steps, forked=self._forked)
        self._forked = []
        for request in self._deadlines.take_passed(now_s):
            plan.finished.append(self._finish(request, "error", "deadline_exceeded"))
        self._age_batch_by_time(now_s)
        self._preempt_asked(plan, now_s)
        computed_there = [each for each in self.running.values() if each.is_prefilling]
        self._books.promise(sum(len(each.block_table) for each in computed_there))
        if self.held_back:
            self.admission.hold_back()
        else:
            self._admit(plan, now_s)
        # They are computed when the server says so.
        plan.chunks = []
        plan.prefill_tokens = plan.decode_tokens = 0
        return plan

    def _age_batch_by_time(self, now_s: float) -> None:
        """How many rounds there are in a second depends on who speaks when, so it is not their number that
        counts."""
        oldest = None if self.shed else self.waiting.oldest_batch()
        if oldest is not None and now_s - oldest.queued_s > self.limits.age_steps * STEP_S:
            self.waiting.remove(oldest)
            oldest.aged = True
            self.waiting.push_first(oldest)
            self.counters.aged += 1

    def _admit(self, plan: Plan, now_s: float) -> None:
        if not self.waiting:
            return
        if not plan.preempted:
            room = BatchPlan(self._batch, self.in_force, plan, now_s, self._exhaust)
            plan.yielded = room.yield_to(self.admission)
            self.counters.yields += plan.yielded
        if len(plan.preempted) > plan.yielded:
            self.admission.hold()
            return
        only = plan.yielded or self.shed
        self._plan_admitted(plan, NO_BUDGET, now_s, ("interactive",) if only else TIERS)

    # --- what comes of them --------------------------------------------------------------------------------

    def token(self, request: Request, token: int, plan: Plan) -> Finish | None:
        """The next token of a running request; how it ended, if that was its last. ``plan`` is told what was
        computed for it."""
        start, total = request.computed_tokens, request.total_tokens
        plan.add(Chunk(request, start, total - start, samples=True))
        request.computed_tokens = total
        request.output.append(token)
        request.account.served += 1
        self.counters.generated_tokens += 1
        missing = self.pool.blocks_for(request.total_tokens) - len(request.block_table)
        if missing > 0:
            request.block_table += self._books.take(missing)
        if token in request.stop_token_ids:
            return self._finish(request, "stop")
        return self._finish(request, "length") if len(request.output) >= request.max_tokens else None

    def ended(
        self, request: Request, reason: FinishReason, error: str | None = None, said: str | None = None
    ) -> Finish | None:
        """The server says that there is no more, and of an error why; None where that is known."""
        if self.running.get(request.id) is not request:
            return None
        finish = self._finish(request, reason, error)
        finish.said = said
        return finish

    def is_overdue(self, now_s: float) -> bool:
        """Nobody steps while the server says nothing: a round may be due for somebody's deadline alone."""
        return bool(self._live) and self._deadlines.have_passed(now_s)
