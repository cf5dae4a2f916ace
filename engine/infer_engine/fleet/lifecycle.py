"""The lives of one replica: start, run until it dies, wait a little, start again; give up on one that keeps
dying."""

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path

from infer_engine.fleet.feed import Feed
from infer_engine.fleet.replica_process import Launch, ReplicaProcess
from infer_engine.fleet.state_change import set_state
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import ReplicaConfig, Stop
from infer_engine.replica.wire import WILL_FAIL_AGAIN
from infer_engine.settings import ReplicaSettings

log = logging.getLogger(__name__)

#: The first restart comes after this, each further one after twice as long.
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
#: A replica that dies this often within the window stays dead.
MOST_CRASHES = 5
CRASH_WINDOW_S = 300.0
#: How long a replica that is not ready yet may say nothing before it counts as hung.
LOAD_SILENCE_S = 300.0
#: How long a replica may take to end by itself once it was told to.
STOP_GRACE_S = 2.0
#: And to be gone once it was killed; then it is left to the kernel.
KILL_GRACE_S = 5.0


class Lifecycle:
    """``run`` is a task that its owner awaits after ``stop``. ``on_lost`` takes care of the requests of a
    replica that is no more: one that died, and one whose life was ended here, be it still there or not."""

    def __init__(
        self,
        handle: ReplicaHandle,
        *,
        endpoint: str,
        settings: ReplicaSettings,
        log_path: Path,
        threads: int,
        feed: Feed,
        clock: Callable[[], float],
        on_lost: Callable[[ReplicaHandle], None],
        launch: Launch,
        ours: bool = True,
    ) -> None:
        """Not ``ours`` is a server that others start and end: it is looked for again for ever."""
        self._ours = ours
        self._handle = handle
        self._endpoint = endpoint
        self._settings = settings
        self._log_path = log_path
        self._threads = handle.threads = threads
        self._feed = feed
        self._clock = clock
        self._on_lost = on_lost
        self._launch = launch
        #: Set once somebody is there to be launched; None: it is started here.
        self._arrival: asyncio.Event | None = None
        self._process: ReplicaProcess | None = None
        self._stopping = asyncio.Event()
        #: Something was decided on what becomes of the replica: whoever waits looks again.
        self._decided = asyncio.Event()
        #: The present life was ended here: its process is to be gone soon, and does not count any more.
        self._given_up = False
        #: It is to start again at once, and that is no crash.
        self._restarts = False
        self._crashes: deque[float] = deque(maxlen=MOST_CRASHES)

    def joins(self, arrival: asyncio.Event, launch: Launch) -> None:
        """It is not for us to start it: it comes by itself, time and again. Before ``run``."""
        self._arrival = arrival
        self._launch = launch
        self._handle.threads = None

    async def run(self) -> None:
        """Until it is stopped."""
        handle = self._handle
        handle.unready_since_s = self._clock()
        while not self._stopping.is_set():
            self._decided.clear()
            if handle.fenced is not None:
                set_state(handle, self._feed, "fenced", message=handle.fenced)
                await self._decided_within(None)
                continue
            if not await self._arrived():
                continue
            self._given_up = self._restarts = False
            handle.begin(handle.incarnation + 1)
            end = await self._live()
            if self._arrival is None:
                handle.may_return = False  # what becomes of it is known now
            if self._stopping.is_set():
                return
            if handle.fenced is None and handle.bad is not None and not self._restarts:
                self._fence_bad(*end)
            if handle.fenced is not None or self._restarts:
                self._end_life()
                continue
            self._decided.clear()
            await self._decided_within(self._after_crash(*end))

    async def stop(self) -> None:
        """End the process, kindly and then less so. Takes a few seconds at most; ``run`` returns after it."""
        self._stopping.set()
        self._decided.set()
        set_state(self._handle, self._feed, "stopping")
        await self._end_process()

    def kill(self) -> None:
        """End its process now; it is started again as after any crash."""
        if self._process is not None:
            self._process.kill()

    @property
    def ended(self) -> bool:
        """It has no process just now."""
        return self._process is None

    def cpu_s(self) -> float | None:
        """Seconds of CPU that its process has used; None where that is not known."""
        return self._process.cpu_s() if self._process is not None else None

    def declare_dead(self, error: str) -> None:
        """It is of no use any more, whether its process ends of being killed or not: its requests are looked
        after now, and it is started again as after any crash."""
        self._handle.error = error
        self._handle.own_death = True
        self._handle.may_return = True  # until its process is gone: what it had waits where nobody else is
        set_state(self._handle, self._feed, "failed", message=error)
        self.kill()
        self._give_up()
        self._end_life()

    def fence(self, why: str, *, actor: str = "") -> None:
        """Its requests leave now, its process is killed, and none is started until ``release``."""
        self._handle.fenced = why
        self._handle.error = why
        set_state(self._handle, self._feed, "fenced", message=why, actor=actor)
        self.kill()
        self._give_up()
        self._end_life()

    def release(self, *, actor: str = "") -> None:
        """Start it again."""
        handle = self._handle
        handle.fenced = handle.error = handle.bad = None
        self._crashes.clear()
        handle.unready_since_s = self._clock()
        self._restarts = self._process is not None  # it is on its way out, and that is no crash
        if self._arrival is None:
            set_state(handle, self._feed, "starting", actor=actor)
        else:
            handle.error = "released: it joins again by itself"
            set_state(handle, self._feed, "failed", message=handle.error, actor=actor)
        self._decided.set()

    async def restart(self, *, actor: str = "") -> None:
        """End its process, kindly where it hears, and start it again at once, also where it had been given
        up; what it still has goes on as after a crash."""
        self._restarts = True
        self._crashes.clear()
        set_state(self._handle, self._feed, "restarting", message="an operator asked for it", actor=actor)
        if self._process is None:
            self._decided.set()
        elif not await self._end_process():
            self._give_up()

    # --- inside --------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        self._given_up = True
        self._decided.set()

    def _end_life(self) -> None:
        """Nothing of the present life counts any more."""
        self._lost()
        self._on_lost(self._handle)

    def _lost(self) -> None:
        """Nothing can be sent to it, and what it still says does not count."""
        self._handle.disown()
        if self._handle.unready_since_s is None:
            self._handle.unready_since_s = self._clock()

    def _fence_bad(self, error: str, _may_recover: bool) -> None:
        handle = self._handle
        handle.fenced = f"its GPU is bad ({handle.bad}); it died: {error}"
        handle.error = handle.fenced
        set_state(handle, self._feed, "fenced", message=handle.fenced)

    async def _arrived(self) -> bool:
        """True when there is somebody to launch; False when something else was decided meanwhile."""
        if self._arrival is None or self._arrival.is_set():
            return True
        waits = [asyncio.ensure_future(each.wait()) for each in (self._arrival, self._decided)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return self._arrival.is_set() and not self._decided.is_set()

    async def _end_process(self) -> bool:
        """False when not even SIGKILL ended it."""
        process = self._process
        if process is None:
            return True
        if self._handle.ready is None:
            process.kill()  # it is loading: it hears nothing, and nothing is lost
        else:
            self._handle.tell(Stop())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await process.wait()
        if await process.stop() is not None:
            return True
        log.error("replica %s cannot be ended", self._named(process))
        return False

    async def _live(self) -> tuple[str, bool]:
        """One life; returns why it ended, and whether another may end better."""
        self._handle.own_death = False
        config = ReplicaConfig(
            replica=self._handle.id,
            incarnation=self._handle.incarnation,
            endpoint=self._endpoint,
            settings=self._settings,
        )
        try:
            process = await self._launch(config, self._log_path, self._threads)
        except OSError as error:
            self._handle.own_death = True
            return f"its process could not be started: {error}", True
        self._process = process
        self._handle.pid = process.pid
        if self._stopping.is_set() or self._given_up:
            process.kill()
        try:
            code = await self._wait(process)
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        finally:
            self._process = None
            process.hang_up()
        if self._stopping.is_set() or self._restarts or self._handle.fenced is not None:
            return self._handle.error or "", True
        # Whoever kills it once it was ready has reasons of their own, and the next life is as good as any.
        # What dies while it loads, by itself, or for want of memory, is likely to die again.
        killed = code == -signal.SIGKILL and self._handle.error is None
        oom = process.oom_killed() if killed else False
        self._handle.own_death = not (killed and self._handle.ready is not None and oom is False)
        error = self._handle.error or process.cause() or ("" if code is None else _describe_exit(code))
        if killed and oom is not False:
            error += ": the kernel ran out of memory" if oom else ", by whom is not known"
        log.error(
            "replica %s died: %s\nthe end of its log:\n%s",
            self._named(process),
            error,
            process.log_tail(),
        )
        return error, code != WILL_FAIL_AGAIN

    def _named(self, process: ReplicaProcess) -> str:
        """For the log. A server of somebody else has no process that is known here."""
        return self._handle.id if process.pid is None else f"{self._handle.id} (pid {process.pid})"

    async def _wait(self, process: ReplicaProcess) -> int | None:
        """Its exit code, or None of one that was given up and does not end of being killed. One that hangs
        while it loads is killed."""
        exit_code = asyncio.ensure_future(process.wait())
        began_s = self._clock()
        given_up = asyncio.ensure_future(self._decided.wait())
        try:
            while True:
                await asyncio.wait(
                    [exit_code] if given_up.done() else [exit_code, given_up],
                    timeout=KILL_GRACE_S if self._given_up else LOAD_SILENCE_S / 10,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if exit_code.done():
                    return exit_code.result()
                if self._given_up and given_up.done():
                    return await self._after_kill(process, exit_code)
                heard_s = max(began_s, self._handle.heard_s or 0.0)
                if self._handle.ready is None and self._clock() - heard_s > LOAD_SILENCE_S:
                    self._handle.error = f"it said nothing for {LOAD_SILENCE_S:.0f} s while loading"
                    process.kill()
        finally:
            exit_code.cancel()
            given_up.cancel()

    async def _after_kill(self, process: ReplicaProcess, exit_code: "asyncio.Future[int]") -> int | None:
        """One that is stuck in the kernel must not keep its requests, nor its successor: it is a zombie whose
        messages count for nothing."""
        await asyncio.wait([exit_code], timeout=KILL_GRACE_S)
        if exit_code.done():
            return exit_code.result()
        # Of a machine that is not ours nothing is left behind here.
        level = logging.ERROR if self._handle.joined is None else logging.WARNING
        log.log(level, "replica %s was killed and does not end", self._named(process))
        return None

    def _after_crash(self, error: str, may_recover: bool) -> float | None:
        """Tell everybody and see to the requests; seconds until the next start, or None for never. A death
        from outside does not count against it, see ``_live``."""
        handle = self._handle
        if handle.own_death:
            self._crashes.append(self._clock())
        recent = sum(self._clock() - crash_s <= CRASH_WINDOW_S for crash_s in self._crashes)
        # Those who are told of its end below must not send to it any more.
        self._lost()
        handle.error = error
        set_state(handle, self._feed, "failed", message=error)
        wait_s: float | None = None
        if self._arrival is not None:
            handle.error = f"lost: {error}; it joins again by itself"
            wait_s = 0.0
        elif not self._ours:
            wait_s = self._looked_for_again(recent, may_recover)
        elif not may_recover:
            handle.error = f"{error} (not started again)"
        elif recent >= MOST_CRASHES:
            minutes = CRASH_WINDOW_S / 60
            handle.error = f"{error} (died {recent} times within {minutes:g} minutes, not started again)"
        else:
            wait_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** max(0, recent - 1))
            set_state(handle, self._feed, "restarting", message=f"starts again in {wait_s:g} s")
        self._on_lost(handle)
        return wait_s

    def _looked_for_again(self, recent: int, may_recover: bool) -> float:
        """What it says may change when others start it anew, so no reason is one for never."""
        if not may_recover:
            return LONGEST_BACKOFF_S
        wait_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** max(0, recent - 1))
        set_state(self._handle, self._feed, "starting", message=f"it is looked for again in {wait_s:g} s")
        return wait_s

    async def _decided_within(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._decided.wait()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was killed by signal {-code}"
