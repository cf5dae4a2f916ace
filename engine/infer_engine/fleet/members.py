"""Which replicas the fleet has: each is a handle, its lifecycle and the task that lives it. They come and go
while the fleet runs."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from infer_engine.fleet.feed import Feed
from infer_engine.fleet.lifecycle import Lifecycle
from infer_engine.fleet.measures import Measures
from infer_engine.fleet.replica_process import Launch
from infer_engine.replica.handle import JoinedFrom, ReplicaHandle, Send
from infer_engine.replica.launch_local import default_threads
from infer_engine.settings import ReplicaSettings

log = logging.getLogger(__name__)

#: How long the task of a replica that was stopped may take to end.
END_S = 5.0
#: Of one that joins by itself.
NOT_HERE = "it is not here yet: it joins by itself"


@dataclass(slots=True, kw_only=True)
class Members:
    """``handles`` is shared, read only, with everybody who looks at the replicas."""

    handles: dict[str, ReplicaHandle]
    settings: ReplicaSettings
    measures: Measures
    feed: Feed
    clock: Callable[[], float]
    pace: float
    run_dir: Path
    endpoint: Callable[[], str]
    send: Send
    launch: Launch
    #: Those that are servers which others start and end.
    foreign: frozenset[str] = frozenset()
    on_lost: Callable[[ReplicaHandle], None]
    #: Has heard that there is one more.
    on_join: Callable[[ReplicaHandle], None] = field(default=lambda _: None)
    lifecycles: dict[str, Lifecycle] = field(default_factory=dict[str, Lifecycle])
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])

    def threads_for(self, count: int) -> int:
        """Compute threads of one of ``count`` replicas, where nobody said."""
        return self.settings.threads or default_threads(max(1, count))

    def add(self, replica: str, count: int) -> ReplicaHandle:
        """One of ``count`` replicas that share this machine; it does not run yet."""
        threads = self.threads_for(count)
        handle = ReplicaHandle(replica, self.send, pace=self.pace)
        self.measures.add(replica, self.clock())
        self.handles[replica] = handle
        self.lifecycles[replica] = Lifecycle(
            handle,
            endpoint=self.endpoint(),
            settings=structs.replace(self.settings, threads=threads, sharers=max(1, count)),
            log_path=self.run_dir / f"{replica}.log",
            threads=threads,
            feed=self.feed,
            clock=self.clock,
            on_lost=self.on_lost,
            launch=self.launch,
            ours=replica not in self.foreign,
        )
        return handle

    def add_joined(self, replica: str, joined: JoinedFrom, settings: ReplicaSettings) -> ReplicaHandle:
        """A place for one that joins by itself; its lifecycle does not run, nor know how it comes."""
        handle = ReplicaHandle(replica, self.send, pace=self.pace)
        handle.joined = joined
        handle.state, handle.error = "failed", NOT_HERE
        self.measures.add(replica, self.clock())
        self.handles[replica] = handle
        self.lifecycles[replica] = Lifecycle(
            handle,
            endpoint=self.endpoint(),
            settings=settings,
            log_path=self.run_dir / f"{replica}.log",
            threads=1,
            feed=self.feed,
            clock=self.clock,
            on_lost=self.on_lost,
            launch=self.launch,
        )
        return handle

    def start(self, replica: str) -> None:
        task = asyncio.create_task(self.lifecycles[replica].run(), name=f"lifecycle-{replica}")
        task.add_done_callback(tell_failure)
        self._tasks[replica] = task

    def join(self, replica: str, count: int) -> ReplicaHandle:
        """A new one, started."""
        handle = self.add(replica, count)
        self.on_join(handle)
        self.feed.event("replica", replica=replica, reason="starting")
        self.start(replica)
        return handle

    async def remove(self, replica: str, *, actor: str = "") -> None:
        """End it for good. What it still has goes on as after a crash."""
        handle = self.handles[replica]
        handle.leaving = True
        await self.lifecycles[replica].stop()
        handle.disown()
        self.on_lost(handle)
        await self._end([self._tasks.pop(replica)])
        del self.handles[replica], self.lifecycles[replica]
        self.measures.retire(replica)
        self.feed.event("replica", replica=replica, reason="removed", actor=actor or None)

    async def stop(self) -> None:
        """End all processes."""
        await asyncio.gather(*(lifecycle.stop() for lifecycle in self.lifecycles.values()))

    async def close(self) -> None:
        await self._end(list(self._tasks.values()))
        self._tasks.clear()

    async def _end(self, tasks: list["asyncio.Task[None]"]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)


def tell_failure(task: "asyncio.Task[None]") -> None:
    """A task of the fleet ends when it is told to; anything else is a bug that must not stay unseen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed", task.get_name(), exc_info=error)
