"""The server's side of one replica: which life of it counts, what it said last, and how to talk to it."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from infer_engine.core.limits import LIMIT_NAMES
from infer_engine.core.observe import block_runs
from infer_engine.protocol import BlockRun, GpuHealth, ReplicaState
from infer_engine.replica.messages import (
    Ack,
    FromReplica,
    LimitsSet,
    Loading,
    Observation,
    Observe,
    Ready,
    SetAdmission,
    SetLimits,
    StepReport,
    Submit,
    ToReplica,
)
from infer_engine.replica.socket_reader import Sent
from infer_engine.replica.wire import identity
from infer_engine.runner.runner import RunnerInfo

log = logging.getLogger(__name__)

#: Messages kept for a replica that does not read; beyond it the replica counts as lost.
MOST_UNSENT = 10_000
#: Step times remembered, to tell a slow step from a stall.
RECENT_STEPS = 32
#: The identity of no replica.
NOBODY = b"-"

Send = Callable[[bytes, ToReplica], Sent]


class LimitsError(Exception):
    """The replica refused new limits, did not answer in time, or died."""


class LimitsPendingError(LimitsError):
    """It did not answer yet, or died before it could: it obeys when it reads its messages, or is told again
    when it has loaded."""


class JoinedFrom(NamedTuple):
    """Of a replica that joined by itself: its machine, by its own word, and the public key that it proved to
    have."""

    host: str
    public: bytes


class ReplicaHandle:
    """``state`` is set by the fleet alone. What is unknown is None; a new incarnation knows nothing of the
    last."""

    def __init__(self, replica: str, send: Send, *, pace: float = 1.0) -> None:
        self.id = replica
        #: Seconds of the fleet's clock in a real one: above 1 when it is simulated and fast.
        self.pace = pace
        self.state: ReplicaState = "starting"
        self.incarnation = 0
        self.pid: int | None = None
        #: Why it died or could not start.
        self.error: str | None = None
        #: Its last life ended of its own: nobody here ended it, and nobody outside killed it.
        self.own_death = False
        #: Since when it takes no requests for want of a server or a process; None while it is there. Of the
        #: fleet's clock.
        self.unready_since_s: float | None = None
        #: It has been there before.
        self.was_ready = False
        #: An operator closed its admission; it stays so over a restart.
        self.cordoned = False
        #: Taken out as broken: its process is dead, and none is started before it is released. Why, in words.
        self.fenced: str | None = None
        #: Why its GPU is not to be trusted; while it is so, no new process is started on it by itself.
        self.bad: str | None = None
        #: What NVML told last of it.
        self.gpu: GpuHealth | None = None
        #: It was closed for a restart that an operator asked for, and is to serve again after it.
        self.reopens = False
        #: Its batch tier is paused.
        self.shed = False
        #: It is on its way out of the fleet for good.
        self.leaving = False
        #: None of one that the server itself launched.
        self.joined: JoinedFrom | None = None
        #: When it has failed, requests may wait for it: it joins by itself and was here not long ago, or was
        #: given up just now, and its process is not gone yet.
        self.may_return = False
        #: Threads that its process computes with.
        self.threads: int | None = None
        #: Limits an operator set, by name, to be set again after a restart.
        self.wanted_limits: dict[str, Any] = {}
        self.wanted_view = Observe()
        self.info: RunnerInfo | None = None
        #: The limits with which its last life started.
        self.first_limits: dict[str, int] = {}
        self._send = send
        self._calls: dict[int, asyncio.Future[LimitsSet]] = {}
        self._call_numbers = itertools.count(1)
        self.begin(0)

    def begin(self, incarnation: int) -> None:
        """Forget the last life and expect messages of ``incarnation``."""
        self.incarnation = incarnation
        self.identity = identity(self.id, incarnation)
        self.pid = None
        self.load_progress: float | None = None
        self.ready: Ready | None = None
        self.observation: Observation | None = None
        #: Of the observation, where it came with the block map.
        self.block_runs: list[BlockRun] | None = None
        #: When the observation came, monotonic and wall clock.
        self.observed_at: float | None = None
        #: Present limits by name.
        self.limits: dict[str, int] = {}
        self.report: StepReport | None = None
        #: The last step before the observation.
        self.observed_report: StepReport | None = None
        #: Which of the two is newer, so that its numbers are the present ones.
        self.report_is_newer = False
        self.last_step_s: float | None = None
        self.heard_s: float | None = None
        #: Since when it has had work without a break.
        self.work_since_s: float | None = None
        self.step_times_s: deque[float] = deque(maxlen=RECENT_STEPS)
        #: Cached blocks that were reused and of which no event told yet, and when the last one did.
        self.evicted_blocks = 0
        self.evictions_told_s = float("-inf")
        #: How often admission was closed without the queue having come back yet.
        self.awaits_withdrawn = 0
        #: Cancel what is left as soon as the queue has come back.
        self.cancel_when_withdrawn = False
        self._unacked = 0
        self._unsent: deque[ToReplica] = deque()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(LimitsPendingError(f"replica {self.id} was lost before it answered"))
        self._calls.clear()

    def disown(self) -> None:
        """Its life is over, whether its process knows or not: nothing reaches it, and what it still says is
        that of a stranger."""
        self.begin(self.incarnation)
        self.identity = NOBODY

    # --- what it said --------------------------------------------------------------------------------------

    def hear(self, message: FromReplica, now_s: float, at: float) -> None:
        """Remember what ``message`` tells of the replica itself."""
        self.heard_s = now_s
        match message:
            case StepReport():
                self.report = message
                self.report_is_newer = True
                self.last_step_s = now_s
                self.step_times_s.append(message.duration_s)
                self._unacked += 1
            case Observation():
                self.observation = message
                self.observed_at = at
                self.observed_report = self.report
                self.block_runs = None if message.blocks is None else block_runs(message.blocks)
                self.report_is_newer = False
                self.limits = limits_of(message)
            case Loading():
                self.load_progress = message.progress
            case Ready():
                self.ready = message
                self.info = message.info
                self.load_progress = None
                self.limits = self.first_limits = limits_of(message)
            case LimitsSet():
                self.limits = self.limits | _known(message.new)
                call = self._calls.pop(message.call, None)
                if call is None and message.error is not None:
                    log.warning("replica %s refused limits: %s", self.id, message.error)
                if call is not None and not call.done():
                    call.set_result(message)
            case _:
                pass

    @property
    def admits(self) -> bool:
        return self.state == "ready"

    @property
    def kv_used(self) -> int | None:
        newest = self._newest()
        return newest.kv_used if newest else None

    @property
    def kv_free(self) -> int | None:
        newest = self._newest()
        return newest.kv_free if newest else None

    @property
    def kv_cached(self) -> int | None:
        newest = self._newest()
        return newest.kv_cached if newest else None

    def _newest(self) -> StepReport | Observation | None:
        return self.report if self.report_is_newer else self.observation

    # --- how to talk to it ---------------------------------------------------------------------------------

    def submit(self, message: Submit) -> bool:
        """Hand it a request. False when it cannot be reached or does not read: place the request
        elsewhere."""
        if self._unsent:
            return False
        return self._send(self.identity, message) == "sent"

    def tell(self, message: ToReplica) -> None:
        """Send in order; what does not fit now is kept and sent later. A replica that is gone hears
        nothing."""
        if self._unsent or self._send(self.identity, message) == "full":
            self._unsent.append(message)

    def flush(self) -> bool:
        """Send what was kept, and acknowledge reports. False when the replica has not read for too long."""
        while self._unsent:
            if self._send(self.identity, self._unsent[0]) == "full":
                return len(self._unsent) <= MOST_UNSENT
            self._unsent.popleft()
        if self._unacked and self._send(self.identity, Ack(reports=self._unacked)) == "sent":
            self._unacked = 0
        return True

    def set_admission(self, *, admit: bool) -> None:
        self.awaits_withdrawn += not admit
        self.cancel_when_withdrawn = False
        self.tell(SetAdmission(open=admit))

    @property
    def slots(self) -> int | None:
        """So many run at once, as far as is known; None before it is ready."""
        most = self.limits.get("max_running")
        shown = None if self.observation is None else self.observation.slots
        return most if most is None or shown is None else min(most, shown)

    @property
    def expected_limits(self) -> dict[str, int]:
        """Its limits by name: the present ones, or those that it will have when it has loaded again."""
        wanted = {name: value for name, value in self.wanted_limits.items() if isinstance(value, int)}
        return {**self.first_limits, **wanted, **self.limits}

    def want(self, changes: dict[str, Any]) -> None:
        """Tell it these limits (fields of SetLimits) after a restart, too."""
        tenants = self.wanted_limits.get("tenants", {}) | (changes.get("tenants") or {})
        self.wanted_limits |= changes
        if tenants:
            self.wanted_limits["tenants"] = tenants

    def watch(self, view: Observe) -> None:
        if view != self.wanted_view:
            self.wanted_view = view
            if self.ready is not None:
                self.tell(view)

    async def set_limits(self, limits: dict[str, Any], timeout_s: float) -> LimitsSet:
        """Set limits (the fields of SetLimits) between two of its steps. LimitsError when it refuses,
        LimitsPendingError when it is lost or does not answer."""
        number = next(self._call_numbers)
        call: asyncio.Future[LimitsSet] = asyncio.get_running_loop().create_future()
        try:
            self._calls[number] = call
            self.tell(SetLimits(call=number, **limits))
            async with asyncio.timeout(timeout_s):
                answer = await call
        except TimeoutError:
            raise LimitsPendingError(f"replica {self.id} did not answer within {timeout_s:.0f} s") from None
        finally:
            self._calls.pop(number, None)
        if answer.error is not None:
            raise LimitsError(answer.error)
        return answer


def limits_of(message: Ready | Observation) -> dict[str, int]:
    """Live limits by name."""
    always = {
        "admit_limit": message.admit_limit,
        "batch_limit": message.batch_limit,
        "max_running": message.max_running,
        "token_budget": message.token_budget,
    }
    return _known(message.limits) | always


def _known(limits: dict[str, int]) -> dict[str, int]:
    """What divides by one of these counts on it."""
    known = {name: limits[name] for name in LIMIT_NAMES if name in limits}
    return {
        name: max(1, value) if name in ("max_running", "token_budget") else value
        for name, value in known.items()
    }
