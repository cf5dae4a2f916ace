"""Simulated replicas, many in this process: the real step loop and scheduler of each, on one virtual clock.

A replica computes a step at its beginning, and everybody hears of it at its end: what it says is delivered at
the moment that its own clock shows, and what it is told meanwhile it reads after the step. So its step loop
is the one of a real replica, and a replica that is killed takes its unfinished step with it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path

from infer_engine.core.limits import LimitsError
from infer_engine.replica.in_process import FAILED, InProcess, Life
from infer_engine.replica.messages import Failed, FromReplica, ReplicaConfig, Started, ToReplica
from infer_engine.replica.step_loop import StepLoop
from infer_engine.replica.virtual_clock import Cancellable, Clock
from infer_engine.replica.wire import SERVER_HWM, WILL_FAIL_AGAIN, identity
from infer_engine.replica.worker import make_scheduler, ready
from infer_engine.runner.runner import Runner

log = logging.getLogger(__name__)

#: Makes the runner of a replica; ``advance`` moves the replica's own clock.
MakeRunner = Callable[[ReplicaConfig, Callable[[float], None]], Runner]


class InprocReplicas(InProcess["InprocReplica"]):
    """Launcher and link in one: give ``launch`` and ``link`` to a fleet. ``pace`` is simulated seconds per
    real second, for those who look at the replicas in real time; ``load_s`` is how long one takes from its
    start until it is ready."""

    def __init__(
        self, clock: Clock, make_runner: MakeRunner, *, pace: float = 1.0, load_s: float = 0.0
    ) -> None:
        super().__init__()
        self.clock = clock
        self.pace = pace
        self._load_s = load_s
        self._make_runner = make_runner

    async def launch(self, config: ReplicaConfig, _log_path: Path, _threads: int) -> "InprocReplica":
        replica = InprocReplica(self, config)
        self.by_identity[replica.identity] = replica
        replica.start(self._make_runner, self._load_s)
        return replica

    # drills

    def crash(self, replica: str, error: str) -> None:
        """Its device fails now: it says so and dies, as a real one would. KeyError when it does not live."""
        self._living(replica).crash(error)

    def kill(self, replica: str) -> None:
        """It is gone without a word. KeyError when it does not live."""
        self._living(replica).kill()

    def freeze(self, replica: str) -> None:
        """It neither steps nor answers any more, and does not die of it. KeyError when it does not live."""
        self._living(replica).freeze()

    def _living(self, replica: str) -> "InprocReplica":
        for each in self.by_identity.values():
            if each.config.replica == replica:
                return each
        raise KeyError(replica)


class InprocReplica(Life):
    """One life of a replica, and the link of its step loop."""

    def __init__(self, replicas: InprocReplicas, config: ReplicaConfig) -> None:
        self.config = config
        self.identity = identity(config.replica, config.incarnation)
        #: It has no process of its own: whoever killed this one's would kill the whole server.
        self.pid = None
        self._replicas = replicas
        self._clock = replicas.clock
        #: This replica's own time: ahead of the clock by the step it has computed.
        self._now_s = self._clock.now()
        self._inbox: deque[ToReplica] = deque()
        self._outbox: list[FromReplica] = []
        self._loop: StepLoop | None = None
        self._runner: Runner | None = None
        #: The one thing that it waits for, and when that is due.
        self._timer: Cancellable | None = None
        self._due_s = 0.0
        self._in_turn = False
        self._frozen = False
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # --- what the fleet sees -------------------------------------------------------------------------------

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def log_tail(self) -> str:
        return "(a simulated replica writes to the server's log)"

    # --- from start to end ---------------------------------------------------------------------------------

    def start(self, make_runner: MakeRunner, load_s: float) -> None:
        """It is ready ``load_s`` from now, if its settings go together."""
        self._at(self._now_s + load_s, lambda: self._load(make_runner))

    def _load(self, make_runner: MakeRunner) -> None:
        self._now_s = max(self._now_s, self._clock.now())
        incarnation = self.config.incarnation
        self.send(Started(replica=self.config.replica, incarnation=incarnation, pid=None))
        runner = make_runner(self.config, self._advance)
        try:
            scheduler = make_scheduler(self.config.settings, runner.info)
        except LimitsError as error:
            self.send(Failed(incarnation=incarnation, error=str(error)))
            self._end(WILL_FAIL_AGAIN)
            return
        self._runner = runner
        self._loop = StepLoop(
            incarnation=incarnation,
            scheduler=scheduler,
            runner=runner,
            link=self,
            clock=lambda: self._now_s,
            pace=self._replicas.pace,
        )
        self.send(ready(incarnation, runner.info, scheduler.limits))
        self._at(self._now_s, self._turn)

    def crash(self, error: str) -> None:
        self._outbox.clear()
        self._replicas.deliver(self, Failed(incarnation=self.config.incarnation, error=error))
        self._end(FAILED)

    def freeze(self) -> None:
        self._frozen = True
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, code: int) -> None:
        """Once. What it had not said yet is never heard."""
        if self._ended.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._replicas.forget(self)
        self._outbox.clear()
        self._inbox.clear()
        if self._runner is not None:
            self._runner.close()
        self._ended.set_result(code)

    # --- time ----------------------------------------------------------------------------------------------

    def _advance(self, seconds: float) -> None:
        self._now_s += seconds

    def _at(self, due_s: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._clock.call_at(due_s, callback)

    def _turn(self) -> None:
        """Say what the last step came to, then let the step loop hear and compute the next."""
        loop = self._loop
        if loop is None or self._ended.done():
            return
        self._now_s = max(self._now_s, self._clock.now())
        self._say()
        self._in_turn = True
        try:
            loop.turn()
        except Exception as error:
            log.exception("replica %s failed", self.config.replica)
            self.crash(f"{type(error).__name__}: {error}")
            return
        finally:
            self._in_turn = False
        if loop.stopping:
            self._at(self._now_s, self._stopped)
        else:
            more = self._inbox or self._outbox
            self._at(self._now_s if more else self._now_s + loop.wait_s(), self._turn)

    def _stopped(self) -> None:
        self._say()
        self._end(0)

    def _say(self) -> None:
        outbox, self._outbox = self._outbox, []
        for message in outbox:
            self._replicas.deliver(self, message)

    # --- the way to and from the server --------------------------------------------------------------------

    def hear(self, message: ToReplica) -> bool:
        """False when it has not read for long."""
        if len(self._inbox) >= SERVER_HWM:
            return False
        self._inbox.append(message)
        if self._loop is not None and not self._in_turn and not self._frozen:
            # In the middle of a step it reads this after the step.
            due_s = max(self._now_s, self._clock.now())
            if due_s < self._due_s:
                self._at(due_s, self._turn)
        return True

    def receive(self, wait_s: float, most: int) -> list[ToReplica]:
        """Never waits: it is asked again when there is something."""
        return [self._inbox.popleft() for _ in range(min(most, len(self._inbox)))]

    def send(self, message: FromReplica) -> None:
        """It is heard when the clock shows this replica's time."""
        if self._outbox or self._now_s > self._clock.now():
            self._outbox.append(message)
        else:
            self._replicas.deliver(self, message)

    def offer(self, message: FromReplica) -> bool:
        self.send(message)
        return True
