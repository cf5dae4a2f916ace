"""The Ray driver and its hosts, on a module in the place of Ray's; ``make test-ray`` has the real one."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from infer_engine.replica.curve import new_pair
from infer_engine.replica.messages import LinkKeys, ReplicaConfig
from infer_engine.replica.ray_messages import (
    Began,
    Connect,
    Connected,
    End,
    Ended,
    FromDriver,
    Hello,
    Look,
    Nodes,
    NotConnected,
    Place,
    Placed,
    Run,
    Running,
    ToDriver,
    Usage,
)
from infer_engine.settings import ReplicaSettings
from support.fake_ray_module import FakeModule, in_place_of_ray
from support.fleets import until

CONNECT = Connect(address="auto", namespace="bench", check_auth=False)
PLACE = Place(key="r0.1", name="bench-r0.1", cpus=2, gpus=1)
RUN = Run(key="r0.1", config="{}", threads=2)


@dataclass
class Bench:
    ray: FakeModule
    lines: asyncio.StreamReader
    said: list[FromDriver] = field(default_factory=list)
    task: "asyncio.Task[int] | None" = None

    def order(self, *orders: ToDriver) -> None:
        for order in orders:
            self.lines.feed_data(msgspec.json.encode(order) + b"\n")

    async def hears(self, kind: type[Any]) -> Any:
        await until(lambda: any(isinstance(each, kind) for each in self.said), kind.__name__)
        return next(each for each in self.said if isinstance(each, kind))

    async def actor(self) -> Any:
        await until(lambda: self.ray.actors, "an actor")
        return self.ray.actors[0]

    async def runs(self) -> Any:
        """The actor of a replica that was placed and started."""
        self.order(PLACE)
        actor = await self.actor()
        actor.place("n1")
        await self.hears(Placed)
        self.order(RUN)
        await self.hears(Running)
        return actor


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    with in_place_of_ray() as ray:
        from infer_engine.replica.ray_driver import Driver

        ray.loop = asyncio.get_running_loop()
        bench = Bench(ray, asyncio.StreamReader())
        bench.task = asyncio.create_task(Driver(bench.said.append).serve(bench.lines))
        bench.order(CONNECT)
        await bench.hears(Connected)
        yield bench
        bench.lines.feed_eof()
        async with asyncio.timeout(60):
            assert await bench.task == 0


async def test_it_joins_quietly_and_tells_the_living_nodes(bench: Bench) -> None:
    assert bench.ray.inits == [
        {"address": "auto", "namespace": "bench", "log_to_driver": False, "configure_logging": False}
    ]
    connected = await bench.hears(Connected)
    assert [(node.id, node.cpus, node.gpus) for node in connected.nodes] == [("n1", 4.0, 0.0)]


async def test_an_actor_is_named_spread_counted_and_never_restarted_by_ray(bench: Bench) -> None:
    actor = await bench.runs()
    assert actor.options == {
        "name": "bench-r0.1",
        "num_cpus": 2,
        "num_gpus": 1,
        "scheduling_strategy": "SPREAD",
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": 16,
    }
    assert {type(each) for each in actor.sent} <= {str, int}, "nothing of ours is pickled"
    assert (await bench.hears(Placed)).node.address == "10.0.0.1"
    assert await bench.hears(Running) == Running(key="r0.1", pid=77)
    assert isinstance(await bench.hears(Nodes), Nodes)
    bench.order(Look(key="r0.1"))
    assert await bench.hears(Usage) == Usage(key="r0.1", cpu_s=1.5)
    bench.order(End(key="r0.1", kindly=False))
    await bench.hears(Ended)


async def test_what_ended_is_told_and_its_actor_removed(bench: Bench) -> None:
    actor = await bench.runs()
    actor.end(3)
    assert await bench.hears(Ended) == Ended(key="r0.1", code=3, oom=False, log_tail="its last line")
    assert actor.killed


@pytest.mark.parametrize(("kindly", "how", "code"), [(True, "stop", 0), (False, "kill", -9)])
async def test_it_is_ended_as_asked(bench: Bench, kindly: bool, how: str, code: int) -> None:
    actor = await bench.runs()
    bench.order(End(key="r0.1", kindly=kindly))
    assert (await bench.hears(Ended)).code == code
    assert actor.stopped == [how]
    assert actor.killed


async def test_one_that_waits_for_a_place_can_be_ended(bench: Bench) -> None:
    bench.order(PLACE)
    actor = await bench.actor()
    bench.order(End(key="r0.1", kindly=True))
    assert await bench.hears(Ended) == Ended(key="r0.1", code=-9, oom=False)
    assert actor.killed


async def test_one_that_ray_is_still_making_is_no_orphan(bench: Bench) -> None:
    gate = threading.Event()
    bench.ray.before_made = lambda: bool(gate.wait(60))  # type: ignore[assignment,return-value]
    bench.order(PLACE, End(key="r0.1", kindly=False))
    gate.set()
    await bench.hears(Ended)
    await until(lambda: bench.ray.actors and bench.ray.actors[0].killed, "removed")


@pytest.mark.parametrize(
    ("text", "cause", "oom"),
    [
        ("x\nThe actor died because its node has died. Node Id: 1", "its node left the Ray cluster", False),
        (
            "x\nTask was killed due to the node running low on memory.",
            "Ray killed it: its node ran low",
            True,
        ),
        ("x\nThe actor is dead because it was killed", "its Ray actor is gone: The actor is dead", None),
    ],
)
async def test_why_an_actor_is_gone(bench: Bench, text: str, cause: str, oom: bool | None) -> None:
    actor = await bench.runs()
    actor.die(text)
    ended = await bench.hears(Ended)
    assert (ended.code, ended.oom) == (-9, oom)
    assert ended.cause.startswith(cause)


async def test_without_a_cluster_it_says_why_and_ends() -> None:
    with in_place_of_ray() as ray:
        from infer_engine.replica.ray_driver import Driver

        ray.init_error = ConnectionError("Could not find any\nrunning Ray instance.")
        lines, said = asyncio.StreamReader(), list[FromDriver]()
        lines.feed_data(msgspec.json.encode(CONNECT) + b"\n")
        assert await Driver(said.append).serve(lines) == 1
        assert said == [NotConnected(error="Could not find any running Ray instance.", see_log=True)]


async def test_a_host_adds_the_key_that_never_left_it_and_keeps_the_token_to_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a secret")
    with in_place_of_ray():
        from infer_engine.replica import ray_host

        started: list[tuple[ReplicaConfig, int, Mapping[str, str]]] = []

        async def launch(config: ReplicaConfig, _log: Path, threads: int, base: Mapping[str, str]) -> Any:
            started.append((config, threads, base))
            return SimpleNamespace(pid=77)

        monkeypatch.setattr(ray_host, "launch", launch)
        host = ray_host.RayHost()
        hello = msgspec.json.decode(await host.hello(), type=Hello)
        assert (hello.node, len(hello.public)) == ("n1", 64)
        keys = LinkKeys(server=new_pair().public.hex(), public=hello.public, secret="", ticket="t")
        config = ReplicaConfig(
            replica="r0", incarnation=1, endpoint="tcp://x:1", settings=ReplicaSettings(), keys=keys
        )
        began = msgspec.json.decode(await host.run(msgspec.json.encode(config).decode(), 2), type=Began)
        assert began == Began(pid=77)
    ((given, threads, base),) = started
    assert given.keys is not None
    assert len(given.keys.secret) == 64
    assert msgspec.structs.replace(given, keys=keys) == config
    assert threads == 2
    assert "RAY_AUTH_TOKEN" not in base
    assert base["PATH"] == os.environ["PATH"]
