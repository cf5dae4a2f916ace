"""What a replica does all day whose computing is done by somebody else's server: hear the fleet, send there
who is admitted, tell what comes back.

All of it is our own replica's loop but for the step: a step is whatever has come since the last one.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import structs

from infer_engine.core.dispatcher import Dispatcher
from infer_engine.core.plan import Finish, Plan
from infer_engine.core.request import Request
from infer_engine.replica.messages import Ack, Observe, Refused, SetLimits, TokenOut, ToReplica
from infer_engine.replica.step_loop import Link, StepLoop
from infer_engine.replica.upstream.dialect import Heard
from infer_engine.replica.upstream.stream import Broke, Ended, Stream, Told
from infer_engine.runner.runner import Runner

#: Codes under which a request comes back that may be served elsewhere, or later.
BUSY, FAILED = "upstream_busy", "upstream_failed"
#: And of one that the server would not have, of one whose answer is none that such a server gives, and of a
#: constrained answer that was begun elsewhere.
REFUSED, STRANGE = "upstream_refused", "upstream_not_understood"
CUT = "constraint_cut"
#: Where a server that is busy does not say when to ask again: first so long, then twice as long, up to.
FIRST_HOLD_S, LONGEST_HOLD_S = 0.5, 30.0


class Opener(Protocol):
    """Sends a request to the server."""

    def __call__(self, request: Request, tell: Callable[[Stream, Told], None]) -> Stream: ...


class UpstreamLoop(StepLoop):
    """``open_stream`` sends a request there; ``on_broken`` hears that a stream broke, and why, and must call
    ``cleared`` when the server was seen alive after it; ``wake`` asks for a turn soon."""

    def __init__(
        self,
        *,
        incarnation: int,
        dispatcher: Dispatcher,
        runner: Runner,
        link: Link,
        clock: Callable[[], float],
        open_stream: Opener,
        on_broken: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(incarnation=incarnation, scheduler=dispatcher, runner=runner, link=link, clock=clock)
        self.dispatcher = dispatcher
        self._open_stream = open_stream
        self._on_broken = on_broken
        self._wake = wake
        self._open: dict[str, Stream] = {}
        self._events: list[tuple[Stream, Told]] = []
        #: Requests that go back, told after what came of them before.
        self._returned: list[Refused] = []
        self._dirty = True
        #: The server did something though nothing came of it that we could see.
        self._moved = False
        #: By its own word.
        self._most_running = runner.info.most_running
        self._suspect = False
        self._asleep = False
        self._held_until_s = float("-inf")
        self._holds = 0
        #: When a token came last.
        self.heard_s = float("-inf")
        #: Streams that broke since a token came last.
        self.broken_in_a_row = 0

    @property
    def streams(self) -> int:
        return len(self._open)

    def close(self) -> None:
        for stream in self._open.values():
            stream.close()
        self._open.clear()

    def _set_limits(self, message: SetLimits) -> None:
        """More than it runs would wait inside it: what was wanted of a life with more slots is cut to what it
        has now."""
        most, asked = self._most_running, message.max_running
        if most is not None and asked is not None and asked > most:
            message = structs.replace(message, max_running=most)
        super()._set_limits(message)

    # --- what its owner sees of the server -----------------------------------------------------------------

    def cleared(self, *, moved: bool, asleep: bool) -> None:
        """The server answered a look: it lives. ``moved``: it made progress."""
        self._suspect = False
        self._asleep = asleep
        self._moved = moved or not self._open
        self._dirty = True
        self._wake()

    # --- turns ---------------------------------------------------------------------------------------------

    def turn(self) -> None:
        self._dirty = self._dirty or len(self.dispatcher.waiting) > 0
        super().turn()

    def _handle(self, message: ToReplica) -> None:
        if isinstance(message, Observe) and message.blocks:
            # Which blocks are whose is not told there.
            message = Observe(hz=message.hz)
        super()._handle(message)
        self._dirty = self._dirty or not isinstance(message, Ack | Observe)

    def _step_is_due(self) -> bool:
        return self.credit > 0 and bool(
            self._dirty
            or self._events
            or self._aborted
            or self._released
            or self.dispatcher.is_overdue(self._clock())
        )

    def _step(self) -> None:
        now_s = self._clock()
        told = Plan(step=0)
        tokens: list[TokenOut] = []
        finished: list[Finish] = [*self._aborted]
        events, self._events = self._events, []
        for stream, what in events:
            end = self._take(stream, what, told, tokens)
            if end is not None:
                finished.append(end)
        dispatcher = self.dispatcher
        dispatcher.held_back = self._suspect or self._asleep or now_s < self._held_until_s
        plan = dispatcher.step(now_s)
        finished += plan.finished
        plan.chunks = told.chunks
        plan.decode_tokens, plan.prefill_tokens = told.decode_tokens, told.prefill_tokens
        changed = bool(finished or plan.admitted or plan.preempted or plan.forked or self._released)
        if changed:
            self._match_streams()
        something = bool(tokens or changed or (self._moved and dispatcher.has_work))
        self._aborted, self._released, self._dirty, self._moved = [], False, False, False
        self._join_forks()
        if something:
            self._report(plan, tokens, finished, now_s)
        returned, self._returned = self._returned, []
        for refused in returned:
            self._link.send(refused)

    def _report(self, plan: Plan, tokens: list[TokenOut], finished: list[Finish], now_s: float) -> None:
        dispatcher = self.dispatcher
        dispatcher.last_step_s = now_s
        self.credit -= 1
        self._link.send(self._account.report(plan, tokens, finished, 0.0, 0))
        if not dispatcher.has_work:
            self._observation_asked = True

    def _match_streams(self) -> None:
        """Who runs has a stream, and nobody else has."""
        running = self.dispatcher.running
        for id, stream in list(self._open.items()):
            if running.get(id) is not stream.request:
                stream.close()
                del self._open[id]
        for id, request in list(running.items()):
            if id in self._open:
                continue
            if request.output and request.sampling.constraint is not None:
                self._give_back(request, CUT, "it cannot go on within what the answer must match")
            else:
                self._open[id] = self._open_stream(request, self._tell)

    def _add(self, request: Request, fork_of: str | None, now_s: float) -> None:
        request.pinned = request.sampling.constraint is not None
        super()._add(request, fork_of, now_s)

    def _tell(self, stream: Stream, told: Told) -> None:
        self._events.append((stream, told))
        self._wake()

    # --- what comes back -----------------------------------------------------------------------------------

    def _take(self, stream: Stream, what: Told, told: Plan, tokens: list[TokenOut]) -> Finish | None:
        request = stream.request
        if self._open.get(request.id) is not stream or self.dispatcher.running.get(request.id) is not request:
            return None
        match what:
            case Heard():
                return self._heard(stream, what, told, tokens)
            case Ended():
                del self._open[request.id]
                return self.dispatcher.ended(request, what.reason)
            case Broke():
                del self._open[request.id]
                return self._broke(request, what)

    def _heard(self, stream: Stream, heard: Heard, told: Plan, tokens: list[TokenOut]) -> Finish | None:
        request = stream.request
        self.heard_s = self._clock()
        self.broken_in_a_row = self._holds = 0
        for at, token in enumerate(heard.tokens):
            logprobs = heard.logprobs[at] if heard.logprobs else None
            tokens.append(TokenOut(request.id, token, len(request.output), logprobs))
            end = self.dispatcher.token(request, token, told)
            if end is not None:
                del self._open[request.id]
                stream.leave()
                return end
        return None

    def _broke(self, request: Request, broke: Broke) -> Finish | None:
        if broke.how in ("refused", "strange"):
            code = REFUSED if broke.how == "refused" else STRANGE
            return self.dispatcher.ended(request, "error", code, broke.message)
        code = BUSY if broke.how == "busy" else FAILED
        if broke.how == "busy":
            wait_s = broke.retry_after_s or min(LONGEST_HOLD_S, FIRST_HOLD_S * 2**self._holds)
            self._holds = min(self._holds + 1, 16)
            self._held_until_s = max(self._held_until_s, self._clock() + wait_s)
        else:
            self._suspect = True
            self.broken_in_a_row += 1
            self._on_broken(broke.message)
        self._give_back(request, code, broke.message)
        return None

    def _give_back(self, request: Request, code: str, message: str) -> None:
        self.dispatcher.release(request.id)
        self._released = True
        self._returned.append(
            Refused(incarnation=self._incarnation, id=request.id, code=code, message=message)
        )

    # --- what is not as in a replica of ours ---------------------------------------------------------------

    def _check_is_due(self, now_s: float) -> bool:
        """There are no blocks of ours whose conservation could be checked."""
        return False
