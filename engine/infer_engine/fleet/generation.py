"""One request's truth: what was asked, what has been generated so far, how it ended.

It belongs to the server, not to a replica: replicas are disposable. Readers (the client's stream, token
taps) keep a cursor into ``emitted`` and wait for more, so there is no queue that could grow.
"""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_engine.fleet.timeline import GatewayMoments, TimelineLog
from infer_engine.fleet.trace_parent import TraceParent
from infer_engine.model.logprobs import TokenLogprobs
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import FinishReason, Problem, Tier


class Refusal(Exception):
    """A request that was not taken. ``problem.status`` is the HTTP status; nothing was left behind."""

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after_s = retry_after_s


def refuse(
    status: int,
    code: str,
    title: str,
    detail: str = "",
    *,
    field: str | None = None,
    numbers: dict[str, float | None] | None = None,
) -> Refusal:
    """A Refusal to raise. ``code`` is stable; ``title`` is a sentence for people."""
    return Refusal(
        Problem(status=status, code=code, title=title, detail=detail, field=field, numbers=numbers or {})
    )


def misfit(field: str, detail: str, *, numbers: dict[str, float | None] | None = None) -> Refusal:
    """A Refusal (422) of one field of a command; its name may be anybody's text."""
    shown = ascii(field)[1:-1][:64]
    return refuse(422, "invalid_field", f"{shown} does not fit.", detail, field=shown, numbers=numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSpec:
    """What a client (or the traffic injector) asks of the fleet; already validated, templated and
    tokenized."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    tenant: str = "default"
    tier: Tier = "interactive"
    priority: int = 0
    synthetic: bool = False
    client_id: str | None = None
    #: What was called, in OpenTelemetry's words: ``chat`` or ``text_completion``.
    operation: str = "text_completion"
    #: Seconds from its arrival after which it ends, wherever it is by then; None for never.
    deadline_s: float | None = None
    #: The id of a request with the same tenant and prompt, taken just before: its replica is preferred, where
    #: both share the prompt's blocks.
    fork_of: str | None = None
    #: What happened to it before the fleet was asked; None for what did not come over HTTP.
    moments: GatewayMoments | None = None
    #: Its client is sent the answer as it grows.
    streams: bool = False
    #: The trace of its client that it belongs to.
    trace_parent: TraceParent | None = None


@dataclass(slots=True, eq=False)
class Generation:
    """Times are the server's monotonic clock. ``emitted`` only grows, unless it starts over; once
    ``finish_reason`` is set nothing changes."""

    id: str
    spec: GenerationSpec
    arrived_s: float
    replica: str | None = None
    emitted: list[int] = field(default_factory=list)
    #: Arrival moment of each emitted token.
    emitted_s: "array[float]" = field(default_factory=lambda: array("d"))
    #: Logprobs by position in ``emitted``, of requests that asked for them; whoever reads one takes it out.
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict[int, TokenLogprobs])
    admitted_s: float | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    #: Stable code beside ``error``: kv_exhausted, replica_lost, cancelled_by_operator, …
    error_code: str | None = None
    preemptions: int = 0
    log: TimelineLog = field(default_factory=TimelineLog)
    #: How often it went on at another place than before: another replica, or its own in another life.
    moves: int = 0
    #: How often it began anew from its prompt: whoever has read something reads again from the first token.
    restarts: int = 0
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def own_end(self) -> FinishReason | None:
        """How it has ended by itself, going by its tokens; None when more are to come. So a request whose
        replica was lost with the news of its end is not continued beyond it."""
        if self.emitted and self.emitted[-1] in self.spec.stop_token_ids:
            return "stop"
        return "length" if len(self.emitted) >= self.spec.max_tokens else None

    def left_s(self, now_s: float) -> float | None:
        """Seconds until its deadline, negative when it has passed; None without one."""
        return None if self.spec.deadline_s is None else self.arrived_s + self.spec.deadline_s - now_s

    def append(self, token: int, now_s: float, logprobs: TokenLogprobs | None = None) -> None:
        if logprobs is not None:
            self.logprobs[len(self.emitted)] = logprobs
        self.emitted.append(token)
        self.emitted_s.append(now_s)

    @property
    def may_start_over(self) -> bool:
        """Its client has not been sent anything of what was emitted, and will not be before the end."""
        return not self.spec.streams

    def start_over(self) -> None:
        """As if nothing had been emitted."""
        self.emitted.clear()
        del self.emitted_s[:]
        self.logprobs.clear()
        self.restarts += 1

    def wake(self) -> None:
        """Tell readers that something was appended or that it ended."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def beyond(self, cursor: int, timeout_s: float) -> bool:
        """Wait until there are tokens after ``cursor`` or the generation ended; False when the time is up
        first."""
        return await any_beyond([(self, cursor)], timeout_s)

    def is_beyond(self, cursor: int) -> bool:
        """There are tokens after ``cursor``, or it ended."""
        return len(self.emitted) > cursor or self.finished

    def watch(self, waiter: asyncio.Future[None]) -> None:
        """Have ``waiter`` done at the next ``wake``."""
        self._waiters.append(waiter)

    def unwatch(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)


async def any_beyond(read: Sequence[tuple[Generation, int]], timeout_s: float) -> bool:
    """Wait until one of several generations has tokens after its cursor or ended; False when the time is up
    first."""
    if any(generation.is_beyond(cursor) for generation, cursor in read):
        return True
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for generation, _ in read:
        generation.watch(waiter)
    try:
        async with asyncio.timeout(timeout_s):
            await waiter
    except TimeoutError:
        return False
    finally:
        for generation, _ in read:
            generation.unwatch(waiter)
    return True
