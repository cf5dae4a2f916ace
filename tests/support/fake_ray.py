"""What the Ray driver says of a cluster that is none: nodes with so many CPUs, and threads in the place of
replica processes, over the real link. ``make test-ray`` has the real one say it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
from infer_engine.replica.curve import KeyPair, new_pair
from infer_engine.replica.messages import ReplicaConfig
from infer_engine.replica.ray_messages import (
    Connected,
    End,
    Ended,
    FromDriver,
    Look,
    Node,
    Nodes,
    Place,
    Placed,
    Run,
    Running,
    ToDriver,
    Usage,
)
from infer_engine.replica.ray_sidecar import Driver, SidecarError
from infer_engine.version import version
from support.fleets import ThreadLauncher, ThreadReplica


@dataclass
class FakeActor:
    place: Place
    node: Node
    pair: KeyPair = field(default_factory=new_pair)
    config: ReplicaConfig | None = None
    replica: ThreadReplica | None = None


class FakeDriver:
    """Ended by ``None`` in its queue."""

    def __init__(self, cluster: "FakeRay") -> None:
        self.cluster = cluster
        self.gone = False
        self.queue: asyncio.Queue[FromDriver | None] = asyncio.Queue()

    def say(self, order: ToDriver) -> bool:
        if not self.gone:
            self.cluster.obey(order)
        return not self.gone

    async def messages(self) -> AsyncIterator[FromDriver]:
        while (message := await self.queue.get()) is not None:
            yield message

    async def close(self) -> str:
        self.gone = True
        self.cluster.release_all()
        return "the driver ended with 1: GCS may have been killed"


class FakeRay:
    """Give ``begin`` to RayReplicas. The threads of all lives are in ``launcher``."""

    def __init__(self, *cpus: float, gpus: float = 0.0) -> None:
        self.nodes = [
            Node(id=f"n{number}", address=f"10.0.0.{number}", cpus=each, gpus=gpus)
            for number, each in enumerate(cpus, 1)
        ]
        self.launcher = ThreadLauncher()
        self.launcher.load_gate.set()
        self.actors: dict[str, FakeActor] = {}
        self.waiting: list[Place] = []
        #: All that were ever asked for, and the configurations that were sent.
        self.places: list[Place] = []
        self.configs: list[ReplicaConfig] = []
        self.driver: FakeDriver | None = None
        self.closed: str | None = None
        self.version = version()
        self.cpu_s = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, _address: str, _namespace: str) -> tuple[Driver, Connected]:
        if self.closed is not None:
            raise SidecarError(self.closed)
        self.driver = FakeDriver(self)
        return self.driver, Connected(address="127.0.0.1", nodes=self.nodes)

    # drills

    def kill_actor(self, key: str) -> None:
        """Its process goes with it."""
        self._end(key, Ended(key=key, code=-9, cause="its Ray actor is gone: killed", oom=None))

    def lose_node(self, node: str) -> None:
        self.nodes = [each for each in self.nodes if each.id != node]
        for key in [key for key, actor in self.actors.items() if actor.node.id == node]:
            self._end(key, Ended(key=key, code=-9, cause="its node left the Ray cluster", oom=False))

    def cut(self, key: str) -> None:
        """Nothing is heard of it any more, and Ray says nothing."""
        replica = self.actors[key].replica
        assert replica is not None
        replica.kill()

    def add_node(self, cpus: float) -> None:
        number = len(self.nodes) + 5
        self.nodes.append(Node(id=f"n{number}", address=f"10.0.0.{number}", cpus=cpus, gpus=0.0))
        for place in list(self.waiting):
            self._place(place)

    def lose_head(self, why: str) -> None:
        """Ray is gone, and with it the driver and all actors; nobody gets in for now."""
        self.closed = why
        assert self.driver is not None
        self.driver.queue.put_nowait(None)

    def release_all(self) -> None:
        for actor in self.actors.values():
            if actor.replica is not None:
                actor.replica.kill()
        self.actors.clear()
        self.waiting.clear()

    # what the driver is asked

    def obey(self, order: ToDriver) -> None:
        match order:
            case Place():
                self.places.append(order)
                self._say(Nodes(nodes=self.nodes))
                self._place(order)
            case Run():
                actor = self.actors.get(order.key)
                if actor is not None:
                    task = asyncio.create_task(self._run(order, actor))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            case Look():
                self._say(Usage(key=order.key, cpu_s=float(next(self.cpu_s))))
            case End():
                self._end(order.key, Ended(key=order.key, code=0 if order.kindly else -9, oom=False))
            case _:
                raise AssertionError(order)

    def _place(self, order: Place) -> None:
        taken = {
            node.id: sum(actor.place.cpus for actor in self.actors.values() if actor.node.id == node.id)
            for node in self.nodes
        }
        room = [
            node
            for node in self.nodes
            if node.cpus - taken[node.id] >= order.cpus and node.gpus >= order.gpus
        ]
        if order in self.waiting:
            self.waiting.remove(order)
        if not room:
            self.waiting.append(order)
            return
        node = min(room, key=lambda node: taken[node.id])
        actor = self.actors[order.key] = FakeActor(order, node)
        self._say(Placed(key=order.key, node=node, version=self.version, public=actor.pair.public.hex()))

    async def _run(self, order: Run, actor: FakeActor) -> None:
        config = msgspec.json.decode(order.config, type=ReplicaConfig)
        self.configs.append(config)
        assert config.keys is not None
        keys = msgspec.structs.replace(config.keys, secret=actor.pair.secret.hex())
        config = msgspec.structs.replace(config, keys=keys)
        replica = actor.replica = ThreadReplica(config, next(self.launcher._numbers), self.launcher)
        self.launcher.lives.setdefault(config.replica, []).append(replica)
        self._say(Running(key=order.key, pid=replica.pid))
        code = await replica.wait()
        if self.actors.get(order.key) is actor and code != -9:
            self._end(order.key, Ended(key=order.key, code=code, oom=False, log_tail="its last line"))

    def _end(self, key: str, last: Ended) -> None:
        actor = self.actors.pop(key, None)
        self.waiting = [place for place in self.waiting if place.key != key]
        if actor is not None and actor.replica is not None:
            (actor.replica.hang_up if last.code == 0 else actor.replica.kill)()
        self._say(last)
        for place in list(self.waiting):
            self._place(place)

    def _say(self, message: FromDriver) -> None:
        if self.driver is not None:
            self.driver.queue.put_nowait(message)
