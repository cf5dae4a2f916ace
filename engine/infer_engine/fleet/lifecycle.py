"""The lives of one replica: start, run until it dies, wait a little, start again; give up on one that keeps
dying."""

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from infer_engine.fleet.feed import Feed
from infer_engine.protocol import ReplicaState
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


class ReplicaProcess(Protocol):
    """What a launcher hands out: something that lives, and can be ended."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """Its exit code (negative: the signal) once it has ended."""
        ...

    def hang_up(self) -> None:
        """Let it know that nobody needs it any more."""
        ...

    def kill(self) -> None: ...

    async def stop(self) -> int | None:
        """End it, kindly and then less so, within seconds; None if nothing helped."""
        ...

    def log_tail(self) -> str: ...


#: Starts a replica: its configuration, the file for its log, and how many threads it computes with.
Launch = Callable[[ReplicaConfig, Path, int], Awaitable[ReplicaProcess]]


def set_state(
    handle: ReplicaHandle, feed: Feed, state: ReplicaState, *, message: str | None = None, actor: str = ""
) -> None:
    """Change a replica's state; the feed tells of every change. ``message`` is server-made text."""
    if handle.state == state:
        return
    handle.state = state
    feed.event("replica", replica=handle.id, reason=state, message=message, actor=actor or None)


class Lifecycle:
    """``run`` is a task that its owner awaits after ``stop``. ``on_lost`` takes care of the dead replica's
    requests."""

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
    ) -> None:
        self._handle = handle
        self._endpoint = endpoint
        self._settings = settings
        self._log_path = log_path
        self._threads = threads
        self._feed = feed
        self._clock = clock
        self._on_lost = on_lost
        self._launch = launch
        self._process: ReplicaProcess | None = None
        self._stopping = asyncio.Event()
        self._crashes: deque[float] = deque(maxlen=MOST_CRASHES)

    async def run(self) -> None:
        """Until it is stopped or has crashed too often."""
        incarnation = self._handle.incarnation
        while not self._stopping.is_set():
            incarnation += 1
            self._handle.begin(incarnation)
            end = await self._live()
            if self._stopping.is_set():
                return
            wait_s = self._after_crash(*end)
            if wait_s is None:
                return
            await self._stopped_within(wait_s)

    async def stop(self) -> None:
        """End the process, kindly and then less so. Takes a few seconds at most; ``run`` returns after it."""
        self._stopping.set()
        set_state(self._handle, self._feed, "stopping")
        process = self._process
        if process is None:
            return
        if self._handle.ready is None:
            process.kill()  # it is loading: it hears nothing, and nothing is lost
        else:
            self._handle.tell(Stop())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await process.wait()
        if await process.stop() is None:
            log.error("replica %s (pid %d) cannot be ended", self._handle.id, process.pid)

    def kill(self) -> None:
        """End its process now; it is started again as after any crash."""
        if self._process is not None:
            self._process.kill()

    # --- inside --------------------------------------------------------------------------------------------

    async def _live(self) -> tuple[str, bool]:
        """One life; returns why it ended, and whether another may end better."""
        config = ReplicaConfig(
            replica=self._handle.id,
            incarnation=self._handle.incarnation,
            endpoint=self._endpoint,
            settings=self._settings,
        )
        try:
            process = await self._launch(config, self._log_path, self._threads)
        except OSError as error:
            return f"its process could not be started: {error}", True
        self._process = process
        self._handle.pid = process.pid
        if self._stopping.is_set():
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
        if self._stopping.is_set():
            return "", False
        error = self._handle.error or _describe_exit(code)
        log.error(
            "replica %s (pid %d) died: %s\nthe end of its log:\n%s",
            self._handle.id,
            process.pid,
            error,
            process.log_tail(),
        )
        return error, code != WILL_FAIL_AGAIN

    async def _wait(self, process: ReplicaProcess) -> int:
        """Its exit code. One that hangs while it loads is killed."""
        exit_code = asyncio.ensure_future(process.wait())
        began_s = self._clock()
        try:
            while True:
                done, _ = await asyncio.wait([exit_code], timeout=LOAD_SILENCE_S / 10)
                if done:
                    return exit_code.result()
                heard_s = max(began_s, self._handle.heard_s or 0.0)
                if self._handle.ready is None and self._clock() - heard_s > LOAD_SILENCE_S:
                    self._handle.error = f"it said nothing for {LOAD_SILENCE_S:.0f} s while loading"
                    process.kill()
        finally:
            exit_code.cancel()

    def _after_crash(self, error: str, may_recover: bool) -> float | None:
        """Tell everybody and see to the requests; seconds until the next start, or None for never."""
        handle = self._handle
        self._crashes.append(self._clock())
        recent = sum(self._clock() - crash_s <= CRASH_WINDOW_S for crash_s in self._crashes)
        # Forget the dead life first: nothing can be sent to it, and what it still says does not count.
        handle.begin(handle.incarnation)
        handle.error = error
        set_state(handle, self._feed, "failed", message=error)
        wait_s: float | None = None
        if not may_recover:
            handle.error = f"{error} (not started again)"
        elif recent >= MOST_CRASHES:
            minutes = CRASH_WINDOW_S / 60
            handle.error = f"{error} (died {recent} times within {minutes:g} minutes, not started again)"
        else:
            wait_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (recent - 1))
            set_state(handle, self._feed, "restarting", message=f"starts again in {wait_s:g} s")
        self._on_lost(handle)
        return wait_s

    async def _stopped_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was killed by signal {-code}"
