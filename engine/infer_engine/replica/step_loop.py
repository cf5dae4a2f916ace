"""What a replica does all day: hear the server, compute a step, tell what came of it.

Everything happens in one thread between two steps, so what an observation says is from one moment. The
link, the runner and the clock are handed in; nothing here knows of processes or sockets.
"""

import logging
from collections.abc import Callable
from typing import Protocol, cast

from infer_engine.core import observe
from infer_engine.core.invariants import violations
from infer_engine.core.limits import LimitChanges, LimitsError
from infer_engine.core.plan import Finish, Plan
from infer_engine.core.refusal import Refusal
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.replica.forks import PendingForks
from infer_engine.replica.messages import (
    CREDIT,
    Abort,
    Ack,
    Admitted,
    FinishedOut,
    FromReplica,
    LimitsSet,
    Observation,
    Observe,
    PreemptedOut,
    Refused,
    SetAdmission,
    SetLimits,
    StepReport,
    Stop,
    Submit,
    TokenOut,
    ToReplica,
    Withdrawn,
)
from infer_engine.runner.runner import Runner
from infer_engine.runner.step_output import StepOutput

log = logging.getLogger(__name__)

#: Messages heard between two steps at most, so that a flood of them cannot stop the batch.
MOST_INBOUND = 256
#: An observation is sent this often even when nobody looks closely.
SLOWEST_OBSERVATION_S = 1.0
FASTEST_OBSERVATION_S = 0.02
#: Of the queue so many are told: the rest is a count, so that a long queue costs no more than a short one.
MOST_WAITING_ROWS = 256
#: What is due sooner than this is waited for as long: a remainder of rounding must not make the loop spin.
SHORTEST_WAIT_S = 0.001
#: An idle replica looks at its invariants at most this often.
IDLE_CHECK_PERIOD_S = 5.0
#: How long to listen when there is work but the scheduler could plan nothing of it.
STUCK_WAIT_S = 0.05


class Link(Protocol):
    """The way to the server."""

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        """At most ``most`` messages, waiting up to ``wait_s`` for the first."""
        ...

    def send(self, message: FromReplica) -> None: ...

    def offer(self, message: FromReplica) -> bool:
        """Send unless the server does not keep up; for what a later message replaces."""
        ...


class StepLoop:
    """``turn`` is one round; ``run`` goes on until ``stopping`` is set, by a Stop message or from outside.

    RuntimeError of the runner is let through: the replica has failed."""

    def __init__(
        self,
        *,
        incarnation: int,
        scheduler: Scheduler,
        runner: Runner,
        link: Link,
        clock: Callable[[], float],
        check_every_step: bool = False,
        pace: float = 1.0,
    ) -> None:
        self.scheduler = scheduler
        self.stopping = False
        #: Step reports that may still be sent before an Ack must come.
        self.credit = CREDIT
        self.invariant_violations = 0
        self._incarnation = incarnation
        self._runner = runner
        self._block_bytes = runner.info.kv_bytes_per_token * runner.info.block_size
        self._link = link
        self._clock = clock
        self._check_every_step = check_every_step
        #: Seconds of the clock in a second of those who look at it: above 1 when it is simulated and fast.
        self._pace = pace
        self._view = Observe()
        self._clock_distance_s: float | None = None
        self._observed_s = clock()
        self._observation_asked = True
        self._stuck = False
        self._checked_s = float("-inf")
        self._forks = PendingForks(scheduler)
        #: Aborted since the last step; the next report tells.
        self._aborted: list[Finish] = []

    def run(self) -> None:
        while not self.stopping:
            self.turn()

    def turn(self) -> None:
        """Hear, step if there is something to do, observe if it is time. Without work it sleeps in the
        link."""
        for message in self._link.receive(self.wait_s(), MOST_INBOUND):
            self._handle(message)
        self._join_forks()
        # What was changed shows at once, not only after a step that may be long.
        self._observe_if_due()
        self._stuck = False
        if not self.stopping and self._step_is_due():
            self._step()
            self._observe_if_due()

    def _step_is_due(self) -> bool:
        return self.credit > 0 and (self.scheduler.has_work or bool(self._aborted))

    def wait_s(self) -> float:
        """How long the next turn may wait for a message before there is something to do."""
        if self._step_is_due():
            return STUCK_WAIT_S if self._stuck else 0.0
        if not self.credit:
            return SLOWEST_OBSERVATION_S * self._pace
        if self._observation_asked:
            return 0.0
        left_s = self._observed_s + self._period_s() - self._clock()
        return min(SLOWEST_OBSERVATION_S * self._pace, max(SHORTEST_WAIT_S, left_s))

    # --- hearing -------------------------------------------------------------------------------------------

    def _handle(self, message: ToReplica) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Abort():
                finish = self.scheduler.abort(message.id, message.reason)
                if self._forks.drop(message.id):
                    finish = Finish(message.id, message.reason, freed_blocks=0, generated_tokens=0)
                if finish is not None:
                    self._aborted.append(finish)
            case SetAdmission():
                self._set_admission(message)
            case SetLimits():
                self._set_limits(message)
            case Observe():
                self._view = message
                self._observation_asked = True
            case Ack():
                self.credit = min(CREDIT, self.credit + message.reports)
            case Stop():
                self.stopping = True

    def _submit(self, message: Submit) -> None:
        now_s = self._clock()
        request = Request(
            id=message.id,
            prompt=message.prompt,
            max_tokens=message.max_tokens,
            arrival_s=self._arrival_s(message, now_s),
            tenant=message.tenant,
            # One tenant's prompts must not show in the latency of another's.
            cache_salt=message.tenant,
            tier=message.tier,
            priority=message.priority,
            deadline_s=self._deadline_s(message, now_s),
            stop_token_ids=frozenset(message.stop_token_ids),
            sampling=message.sampling,
            synthetic=message.synthetic,
            output=list(message.emitted),
        )
        if message.fork_of is None:
            self._add(request, None, now_s)
        elif not self._forks.hold(message.fork_of, request):
            self._add(request, message.fork_of, now_s)

    def _join_forks(self) -> None:
        for parent_id, child in self._forks.take_settled():
            self._add(child, parent_id, self._clock())

    def _add(self, request: Request, fork_of: str | None, now_s: float) -> None:
        try:
            if fork_of is None:
                self.scheduler.add(request, now_s)
            else:
                self.scheduler.fork(fork_of, request, now_s)
        except Refusal as refusal:
            self._link.send(
                Refused(
                    incarnation=self._incarnation,
                    id=request.id,
                    code=refusal.code,
                    message=str(refusal),
                    numbers=refusal.numbers,
                )
            )

    def _arrival_s(self, message: Submit, now_s: float) -> float:
        """On this replica's clock. The clocks' distance is taken from the first request and kept, so that the
        time messages take cannot change anybody's place in the queue."""
        if message.arrived_s is None:
            return now_s - message.waited_s
        if self._clock_distance_s is None:
            self._clock_distance_s = now_s - message.waited_s - message.arrived_s
        return message.arrived_s + self._clock_distance_s

    def _deadline_s(self, message: Submit, now_s: float) -> float | None:
        """On this replica's clock. Where the server says by its own clock when the request arrived, the time
        that the message took is no reprieve."""
        if message.deadline_in_s is None:
            return None
        sent_s = now_s
        if message.arrived_s is not None:
            sent_s = min(now_s, self._arrival_s(message, now_s) + message.waited_s)
        return sent_s + message.deadline_in_s

    def _set_admission(self, message: SetAdmission) -> None:
        if message.open:
            self.scheduler.open_admission()
        else:
            withdrawn = [request.id for request in self.scheduler.close_admission()]
            withdrawn += self._forks.take_all()
            self._link.send(Withdrawn(incarnation=self._incarnation, ids=withdrawn))
        self._observation_asked = True

    def _set_limits(self, message: SetLimits) -> None:
        given = {name: getattr(message, name) for name in LimitChanges.__annotations__}
        try:
            old, new = self.scheduler.set_limits(**cast("LimitChanges", given))
        except LimitsError as error:
            self._link.send(LimitsSet(incarnation=self._incarnation, call=message.call, error=str(error)))
            return
        self._link.send(
            LimitsSet(
                incarnation=self._incarnation,
                call=message.call,
                old=old.by_name(),
                new=new.by_name(),
                old_tenant_default=old.tenant_default,
                new_tenant_default=new.tenant_default,
                old_tenants=dict(old.tenants),
                new_tenants=dict(new.tenants),
            )
        )
        self._observation_asked = True

    # --- stepping ------------------------------------------------------------------------------------------

    def _step(self) -> None:
        began_s = self._clock()
        plan = self.scheduler.step(began_s)
        before = {chunk.request.id: len(chunk.request.output) for chunk in plan.chunks if chunk.samples}
        output = self._runner.execute(plan) if plan.chunks or plan.swap_out else StepOutput()
        ended_s = self._clock()
        finished = [*self._aborted, *plan.finished, *self._end_failed(output)]
        finished += self.scheduler.commit(output.tokens, ended_s)
        self._aborted = []
        self._join_forks()
        if self._check_every_step or self._check_is_due(ended_s):
            self._check_invariants()
        self._report(
            plan,
            [
                TokenOut(request, token, before[request], output.logprobs.get(request))
                for request, token in output.tokens.items()
                if request not in output.errors
            ],
            finished,
            ended_s - began_s,
        )
        self._stuck = not (plan.chunks or plan.preempted or finished)
        if not self.scheduler.has_work:
            # Nothing may stand on the last step's view while the replica sleeps.
            self._observation_asked = True

    def _end_failed(self, output: StepOutput) -> list[Finish]:
        """Who cannot go on leaves before the step is committed, so that its token is dropped."""
        ends = [self.scheduler.abort(request, "error", code) for request, code in output.errors.items()]
        return [end for end in ends if end is not None]

    def _report(self, plan: Plan, tokens: list[TokenOut], finished: list[Finish], duration_s: float) -> None:
        pool = self.scheduler.pool
        self.credit -= 1
        self._link.send(
            StepReport(
                incarnation=self._incarnation,
                step=plan.step,
                duration_s=duration_s,
                running=len(self.scheduler.running),
                waiting=len(self.scheduler.waiting) + len(self._forks),
                decode_tokens=plan.decode_tokens,
                prefill_tokens=plan.prefill_tokens,
                kv_used=pool.used,
                kv_free=pool.free,
                kv_cached=pool.cached,
                invariant_violations=self.invariant_violations,
                tokens=tokens,
                admitted=[
                    Admitted(each.id, each.blocks, each.resumed) for each in (*plan.forked, *plan.admitted)
                ],
                preempted=[
                    PreemptedOut(each.id, each.mode, each.freed_blocks, each.redo_tokens)
                    for each in plan.preempted
                ],
                finished=[
                    FinishedOut(each.id, each.reason, each.freed_blocks, each.generated_tokens, each.error)
                    for each in finished
                ],
                evicted_blocks=len(plan.evicted),
                prefix_queries_tokens=plan.prefix_queries_tokens,
                prefix_hit_tokens=plan.prefix_hit_tokens,
                swapped_out_bytes=len(plan.swap_out) * self._block_bytes,
                swapped_in_bytes=len(plan.swap_in) * self._block_bytes,
            )
        )

    def _check_is_due(self, now_s: float) -> bool:
        """When there is nothing else to do, and not after every single request: a large pool takes a while to
        look through."""
        if self.scheduler.has_work or now_s - self._checked_s < IDLE_CHECK_PERIOD_S * self._pace:
            return False
        self._checked_s = now_s
        return True

    def _check_invariants(self) -> None:
        for violation in violations(self.scheduler):
            self.invariant_violations += 1
            log.error("step %d: %s", self.scheduler.counters.steps, violation)

    # --- observing -----------------------------------------------------------------------------------------

    def _period_s(self) -> float:
        if self._view.hz <= 0:
            return SLOWEST_OBSERVATION_S * self._pace
        return self._pace * min(SLOWEST_OBSERVATION_S, max(FASTEST_OBSERVATION_S, 1 / self._view.hz))

    def _observe_if_due(self) -> None:
        now_s = self._clock()
        due = self._observation_asked or now_s - self._observed_s >= self._period_s()
        if not due or not self.credit:
            return
        # One that finds no room is replaced by the next.
        self._link.offer(self._observation(now_s))
        self._observation_asked = False
        self._observed_s = now_s

    def _observation(self, now_s: float) -> Observation:
        scheduler = self.scheduler
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
            invariant_violations=self.invariant_violations,
            rows=observe.rows(scheduler, MOST_WAITING_ROWS) + self._forks.rows(),
            waiting=len(scheduler.waiting) + len(self._forks),
            blocks=observe.block_runs(scheduler) if self._view.blocks else None,
            admit_limit=limits.admit_limit,
            batch_limit=limits.batch_limit,
            max_running=limits.max_running,
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
