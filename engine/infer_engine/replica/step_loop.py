"""What a replica does all day: hear the server, compute a step, tell what came of it.

Everything happens in one thread between two steps, so what an observation says is from one moment. The
link, the runner and the clock are handed in; nothing here knows of processes or sockets.
"""

import logging
from collections.abc import Callable
from typing import Protocol, cast

from infer_engine.core.invariants import violations
from infer_engine.core.limits import LimitChanges, LimitsError
from infer_engine.core.plan import Finish
from infer_engine.core.refusal import Refusal
from infer_engine.core.request import Request
from infer_engine.core.scheduler import Scheduler
from infer_engine.replica.account import Account, limits_set
from infer_engine.replica.forks import PendingForks
from infer_engine.replica.messages import (
    CREDIT,
    Abort,
    Ack,
    FromReplica,
    LimitsSet,
    Observe,
    PreemptOne,
    Refused,
    Release,
    Released,
    ReleasedOut,
    SetAdmission,
    SetLimits,
    SetShed,
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
        block_bytes = runner.info.kv_bytes_per_token * runner.info.block_size
        self._account = Account(incarnation, scheduler, self._forks, block_bytes)
        #: Aborted since the last step; the next report tells.
        self._aborted: list[Finish] = []
        #: Blocks were freed by a Release; the next report tells.
        self._released = False

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
        return self.credit > 0 and (
            self.scheduler.has_work
            or bool(self._aborted)
            or self._released
            or self.scheduler.is_overdue(self._clock())
        )

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
            case Release():
                self._release(message)
            case PreemptOne():
                self.scheduler.preempt(message.id)
            case SetAdmission():
                self._set_admission(message)
            case SetLimits():
                self._set_limits(message)
            case SetShed():
                self.scheduler.set_shed(message.on)
                self._observation_asked = True
            case Observe():
                self._view = message
                self._observation_asked = True
            case Ack():
                self.credit = min(CREDIT, self.credit + message.reports)
            case Stop():
                self.stopping = True

    def _submit(self, message: Submit) -> None:
        now_s = self._clock()
        largest = max(max(message.prompt, default=0), max(message.emitted, default=0))
        if largest >= self._runner.info.vocab_size:
            # It would fail the step, and with it everybody else's request.
            text = f"token {largest} is not in the vocabulary of {self._runner.info.vocab_size} tokens"
            self._refuse(message.id, "unknown_token", text, {})
            return
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
            self._refuse(request.id, refusal.code, str(refusal), refusal.numbers)

    def _refuse(self, id: str, code: str, message: str, numbers: dict[str, float]) -> None:
        self._link.send(
            Refused(incarnation=self._incarnation, id=id, code=code, message=message, numbers=numbers)
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

    def _release(self, message: Release) -> None:
        released: list[ReleasedOut] = []
        for request_id in message.ids:
            if message.only_waiting and request_id in self.scheduler.running:
                continue
            freed = 0 if self._forks.drop(request_id) else self.scheduler.release(request_id)
            if freed is not None:
                released.append(ReleasedOut(request_id, freed))
        self._link.send(Released(incarnation=self._incarnation, asked=message.ids, released=released))
        self._released = True
        self._observation_asked = True

    def _set_limits(self, message: SetLimits) -> None:
        given = {name: getattr(message, name) for name in LimitChanges.__annotations__}
        try:
            old, new = self.scheduler.set_limits(**cast("LimitChanges", given))
        except LimitsError as error:
            self._link.send(LimitsSet(incarnation=self._incarnation, call=message.call, error=str(error)))
            return
        self._link.send(limits_set(self._incarnation, message.call, old, new))
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
        self._released = False
        self._join_forks()
        if self._check_every_step or self._check_is_due(ended_s):
            self._check_invariants()
        tokens = [
            TokenOut(request, token, before[request], output.logprobs.get(request))
            for request, token in output.tokens.items()
            if request not in output.errors
        ]
        self.credit -= 1
        self._link.send(
            self._account.report(plan, tokens, finished, ended_s - began_s, self.invariant_violations)
        )
        self._stuck = not (plan.chunks or plan.preempted or finished)
        if not self.scheduler.has_work:
            # Nothing may stand on the last step's view while the replica sleeps.
            self._observation_asked = True

    def _end_failed(self, output: StepOutput) -> list[Finish]:
        """Who cannot go on leaves before the step is committed, so that its token is dropped."""
        ends = [self.scheduler.abort(request, "error", code) for request, code in output.errors.items()]
        return [end for end in ends if end is not None]

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
        self._link.offer(
            self._account.observation(now_s, self.invariant_violations, blocks=self._view.blocks)
        )
        self._observation_asked = False
        self._observed_s = now_s
