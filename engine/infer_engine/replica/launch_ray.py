"""Replicas on the nodes of a Ray cluster: Ray finds the place and tells of its loss; all that is said goes
over our own link (TCP, encrypted), and the fleet's lifecycle restarts.

Launcher and link in one, as ``launch_inproc`` is: give ``launch`` and ``link`` to a fleet.
"""

import asyncio
import importlib.util
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import structs

from infer_engine.replica.curve import new_pair
from infer_engine.replica.messages import FromReplica, ReplicaConfig
from infer_engine.replica.ray_messages import (
    Connected,
    Ended,
    FromDriver,
    Node,
    Nodes,
    Place,
    Placed,
    Run,
    Running,
    ToDriver,
    Usage,
)
from infer_engine.replica.ray_process import RayProcess
from infer_engine.replica.ray_room import fits, gpus_of, shortage
from infer_engine.replica.ray_sidecar import Begin, Driver, SidecarError, begin_sidecar
from infer_engine.replica.server_link import OnMessage
from infer_engine.replica.tcp_link import TcpLink
from infer_engine.replica.wire import identity
from infer_engine.version import version

log = logging.getLogger(__name__)

#: Where actors have their names: other programs on the cluster have other namespaces.
NAMESPACE = "infer-console"
#: How long a replica may wait for a place before that counts as a failed start; long enough that the
#: lifecycle goes on trying (``CRASH_WINDOW_S``).
PLACE_S = 90.0
#: How often links and places are looked at.
LOOK_S = 0.5
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0


class NoClusterError(Exception):
    """There is no way into the Ray cluster; ``str()`` is one line for the operator."""


def require_ray() -> None:
    """NoClusterError naming the extra where it is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise NoClusterError("launcher is ray, but Ray is not installed: pip install 'infer-console[ray]'")


class RayReplicas:
    """``connect`` comes first and ``close`` last. ``address`` is the cluster's, or auto."""

    def __init__(
        self,
        fleet: str,
        address: str,
        *,
        begin: Begin = begin_sidecar,
        place_s: float = PLACE_S,
    ) -> None:
        self._fleet = fleet
        self._address = address
        self._begin = begin
        self._place_s = place_s
        #: Tells this server's actors from those of its predecessor, which may not be gone yet.
        self._epoch = secrets.token_hex(4)
        self._driver: Driver | None = None
        self._connected: Connected | None = None
        self._nodes: list[Node] = []
        self._link: TcpLink | None = None
        self._processes: dict[str, RayProcess] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # --- what the server and the fleet ask for -------------------------------------------------------------

    async def connect(self) -> list[Node]:
        """The nodes there are now. NoClusterError when there is no way in."""
        try:
            self._driver, self._connected = await self._begin(self._address, NAMESPACE)
        except SidecarError as error:
            raise NoClusterError(f"the Ray cluster ({self._address}): {error}") from None
        self._tasks = [
            asyncio.create_task(self._keep_connected(), name="ray-driver"),
            asyncio.create_task(self._look(), name="ray-look"),
        ]
        for task in self._tasks:
            task.add_done_callback(_tell_failure)
        self._nodes = self._connected.nodes
        return self._nodes

    def link(self, _directory: Path, on_message: OnMessage, on_batch_end: Callable[[], None]) -> TcpLink:
        if self._connected is None:
            raise RuntimeError("connect comes first")

        def hear(peer: bytes, message: FromReplica) -> None:
            process = self._processes.get(peer.decode())
            if process is not None:
                process.was_reached = True
            on_message(peer, message)

        self._link = TcpLink(self._connected.address, 0, new_pair(), hear, on_batch_end)
        return self._link

    async def launch(self, config: ReplicaConfig, _log_path: Path, threads: int) -> RayProcess:
        """Returns before there is a place for it: what comes of it, the process tells."""
        key = identity(config.replica, config.incarnation).decode()
        process = RayProcess(key, config, threads, self._order, deadline_s=_now() + self._place_s)
        self._processes[key] = process
        process.on_end(self._forget)
        self._place(process)
        return process

    def nodes(self) -> dict[str, Node]:
        """Where each replica is that has a place."""
        return {
            process.config.replica: process.node
            for process in self._processes.values()
            if process.node is not None
        }

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._processes.values()):
            process.lost("the server lets go of it")
        if self._driver is not None:
            await self._driver.close()
            self._driver = None

    # --- the driver ----------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        """Hear the driver; when it is gone so are its actors, and another takes its place."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            if self._driver is None:
                await asyncio.sleep(backoff_s)
                backoff_s = min(LONGEST_BACKOFF_S, 2 * backoff_s)
                try:
                    self._driver, self._connected = await self._begin(self._address, NAMESPACE)
                except SidecarError as error:
                    log.warning("the Ray cluster (%s): %s", self._address, error)
                    self._note(f"no connection to the Ray cluster ({self._address}): {error}")
                    continue
                for process in list(self._processes.values()):
                    self._place(process)
            backoff_s = FIRST_BACKOFF_S
            async for message in self._driver.messages():
                self._hear(message)
            why = await self._driver.close()
            self._driver = None
            log.error("the connection to the Ray cluster (%s) is lost: %s", self._address, why)
            self._all_lost(f"the connection to the Ray cluster is lost: {why}")

    def _all_lost(self, why: str) -> None:
        """Those that wait for a place go on waiting."""
        for process in list(self._processes.values()):
            if process.node is not None:
                process.lost(why)
            else:
                process.waits_for = why

    def _note(self, why: str) -> None:
        for process in self._processes.values():
            process.waits_for = why

    def _order(self, order: ToDriver) -> bool:
        """False when there is no driver now; then its actors are gone, too."""
        return self._driver is not None and self._driver.say(order)

    def _place(self, process: RayProcess) -> None:
        gpus = gpus_of(process.config.settings)
        name = f"{self._fleet}-{self._epoch}-{process.key}"
        if self._order(Place(key=process.key, name=name, cpus=process.threads, gpus=gpus)):
            process.waits_for = None

    def _forget(self, process: RayProcess) -> None:
        if self._processes.get(process.key) is process:
            del self._processes[process.key]
        if self._link is not None:
            self._link.withdraw(process.key.encode())

    # --- what the driver says ------------------------------------------------------------------------------

    def _hear(self, message: FromDriver) -> None:
        if isinstance(message, Nodes):
            self._nodes = message.nodes
            return
        if not isinstance(message, Placed | Running | Usage | Ended):
            log.warning("the Ray driver said %s a second time", type(message).__name__)
            return
        process = self._processes.get(message.key)
        if process is None:
            return
        match message:
            case Placed():
                self._start(process, message)
            case Running():
                process.running(message.pid)
            case Usage():
                process.used(message.cpu_s)
            case Ended():
                process.ended(message)

    def _start(self, process: RayProcess, placed: Placed) -> None:
        process.node = placed.node
        if placed.version != version():
            process.refuse(
                f"node {placed.node.address} has infer-console {placed.version}, this server has "
                f"{version()}: all nodes need the same"
            )
            return
        if self._link is None:
            raise RuntimeError("the fleet has no link to its replicas yet")
        process.server = self._link.endpoint
        keys = self._link.issue(process.key.encode(), bytes.fromhex(placed.public))
        config = process.config
        here = max(1, fits(placed.node, process.threads, gpus_of(config.settings)))
        config = structs.replace(
            config,
            endpoint=process.server,
            keys=keys,
            # As many as Ray may put there share the node's memory.
            settings=structs.replace(config.settings, sharers=min(here, config.settings.sharers)),
        )
        self._order(
            Run(key=process.key, config=msgspec.json.encode(config).decode(), threads=process.threads)
        )

    async def _look(self) -> None:
        """For what nobody tells of: a connection that is gone while Ray has not noticed yet, a place that
        does not come, an end that is not answered."""
        while True:
            await asyncio.sleep(LOOK_S)
            for process in list(self._processes.values()):
                reaches = self._link is not None and self._link.reaches(process.key.encode())
                if process.look(_now(), reaches=reaches):
                    log.warning("replica %s waits: %s", process.config.replica, self._why(process))
                if process.is_overdue(_now()):
                    process.refuse(f"it has no place: {self._why(process)}")

    def _why(self, process: RayProcess) -> str:
        gpus = gpus_of(process.config.settings)
        return process.waits_for or shortage(process.threads, gpus, self._nodes)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed", task.get_name(), exc_info=error)


def _now() -> float:
    return asyncio.get_running_loop().time()
