"""A fleet on a real Ray cluster of two nodes on this machine (and a head without CPUs, where the server is),
with a real, tiny model: ``make test-ray``. Ray takes long to start, so this is no part of the suite."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec
from infer_engine.fleet.on_ray import OnRay, enter_ray
from infer_engine.model.sampling import Sampling
from infer_engine.protocol import Drain, Event, Scale
from infer_engine.replica.launch_ray import NoClusterError, RayReplicas
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.fleets import until
from support.ray_cluster import RayCluster
from support.running import make_request, make_runner, run_all
from support.tiny_model import write_tiny_gguf

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

WITHIN_S = 120.0
PROMPT = range(10, 40)
TOKENS = 900
NODE_CPUS = 3


@dataclass
class Bench:
    cluster: RayCluster
    fleet: Fleet
    replicas: RayReplicas
    expected: list[int]
    feed: list[FeedItem] = field(default_factory=list)

    async def ask(self, *order: object) -> Any:
        return await asyncio.to_thread(self.cluster.ask, *order)

    async def streaming(self, count: int) -> list[Generation]:
        """So many long answers, all of which have begun."""
        spec = GenerationSpec(
            prompt=tuple(PROMPT), max_tokens=TOKENS, sampling=Sampling(temperature=0.0), stop_token_ids=()
        )
        generations = [self.fleet.submit(spec) for _ in range(count)]
        await until(lambda: all(each.emitted for each in generations), "streams", WITHIN_S)
        return generations

    async def all_whole(self, generations: list[Generation]) -> None:
        """None is broken, and each has said what one machine says."""
        await until(lambda: all(each.finished for each in generations), "ends", WITHIN_S)
        assert [each.finish_reason for each in generations] == ["length"] * len(generations)
        assert all(list(each.emitted) == self.expected for each in generations)

    async def ready(self, count: int) -> None:
        await until(lambda: len(self.fleet.capacity.ready_replicas()) == count, f"{count} ready", WITHIN_S)

    def nodes(self) -> dict[str, str]:
        """The node's id, by replica."""
        return {replica: node.id for replica, node in self.replicas.nodes().items()}


def settings(model: Path, **given: Any) -> ServerSettings:
    return ServerSettings(
        **{"replicas": 4, "seed": 3, "launcher": "ray", **given},
        replica=ReplicaSettings(
            model=str(model), kv_blocks=256, max_running=4, admit_limit_ratio=1.0, threads=1, device="cpu"
        ),
    )


@asynccontextmanager
async def entered(given: ServerSettings) -> AsyncGenerator[OnRay]:
    on_ray = await enter_ray(given)
    try:
        yield on_ray
    finally:
        await on_ray.close()


def fleet_of(on_ray: OnRay) -> tuple[Fleet, RayReplicas]:
    assert on_ray.replicas is not None
    return Fleet(on_ray.settings, launch=on_ray.replicas.launch, link=on_ray.replicas.link), on_ray.replicas


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture(scope="module")
def cluster() -> Generator[RayCluster]:
    cluster = RayCluster()
    try:
        for _ in range(2):
            cluster.ask("add", NODE_CPUS)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.environment.items():
                patch.setenv(name, value)
            yield cluster
    finally:
        cluster.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ray(cluster: RayCluster, model: Path) -> AsyncGenerator[Bench]:
    runner = make_runner(model=str(model), kv_blocks=256, threads=1, device="cpu")
    alone = make_request("alone", PROMPT, max_tokens=TOKENS)
    run_all(runner, [alone])
    runner.close()
    async with entered(settings(model, ray_address=cluster.address)) as on_ray:
        fleet, replicas = fleet_of(on_ray)
        bench = Bench(cluster, fleet, replicas, list(alone.output))
        fleet.feed.subscribe(bench.feed.append)
        await fleet.start()
        try:
            await bench.ready(4)
            yield bench
        finally:
            await fleet.stop()
            await until(lambda: not cluster.workers(), "all replica processes gone", WITHIN_S)
            await until(lambda: not cluster.ask("actors"), "all actors gone", WITHIN_S)


async def test_four_replicas_are_spread_over_both_nodes_and_stream(ray: Bench) -> None:
    nodes = ray.nodes()
    assert sorted(nodes) == ["r0", "r1", "r2", "r3"]
    assert len(set(nodes.values())) == 2
    names = await ray.ask("actors")
    assert [(name.split("-")[0], name.split("-")[2]) for name in names] == [
        ("local", f"{replica}.1") for replica in sorted(nodes)
    ]
    generations = await ray.streaming(8)
    assert {each.replica for each in generations} == set(nodes)
    await ray.all_whole(generations)
    assert {each.moves for each in generations} == {0}


async def test_a_killed_actor_takes_its_process_along_and_no_stream(ray: Bench) -> None:
    generations = await ray.streaming(8)
    names = await ray.ask("actors")
    lost = [each for each in generations if each.replica == "r0"]
    pid = ray.fleet.replica("r0").pid
    assert lost
    await ray.ask("kill-actor", names[0])
    await ray.all_whole(generations)
    assert {each.moves for each in lost} == {1}
    await ray.ready(4)
    assert ray.fleet.replica("r0").incarnation == 2
    await until(lambda: pid not in ray.cluster.workers(), "its process is gone", WITHIN_S)


async def test_a_killed_process_is_told_as_what_it_is(ray: Bench) -> None:
    generations = await ray.streaming(4)
    pid = ray.fleet.replica("r1").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await ray.all_whole(generations)
    await ray.ready(4)
    assert ray.fleet.replica("r1").incarnation == 2
    events = [item for item in ray.feed if isinstance(item, Event) and item.replica == "r1"]
    (failed,) = [event.message or "" for event in events if event.reason == "failed"]
    assert failed.startswith("its process was killed by SIGKILL")


async def test_a_drained_replica_hands_its_streams_over(ray: Bench) -> None:
    generations = await ray.streaming(8)
    mine = [each for each in generations if each.replica == "r2"]
    assert mine
    ray.fleet.draining.drain("r2", Drain(mode="migrate"))
    await ray.all_whole(generations)
    assert all(each.moves == 1 for each in mine)
    await until(lambda: ray.fleet.replica("r2").state == "drained", "drained", WITHIN_S)
    ray.fleet.draining.undrain("r2")
    await ray.ready(4)


async def test_scale_up_finds_a_place_and_scale_down_gives_it_back(ray: Bench) -> None:
    generations = await ray.streaming(4)
    started, _ = ray.fleet.resizing.begin(Scale(replicas=5))
    await ray.ready(5)
    assert set(ray.nodes()) == {"r0", "r1", "r2", "r3", *started}
    _, victims = ray.fleet.resizing.begin(Scale(replicas=4, victims=started))
    assert victims == started
    more = await ray.streaming(8)
    ray.fleet.draining.drain(started[0], Drain(mode="migrate"))
    await ray.fleet.resizing.remove(started[0])
    assert set(ray.nodes()) == {"r0", "r1", "r2", "r3"}
    await ray.all_whole([*generations, *more])
    await until(lambda: len(ray.cluster.ask("actors")) == 4, "its actor is gone", WITHIN_S)


async def test_a_lost_node_breaks_no_stream_and_its_replicas_wait_for_another(ray: Bench) -> None:
    generations = await ray.streaming(8)
    nodes = ray.nodes()
    gone = nodes["r3"]
    lost = {replica for replica, node in nodes.items() if node == gone}
    moving = [each for each in generations if each.replica in lost]
    assert moving
    await ray.ask("remove", gone)
    await ray.all_whole(generations)
    assert all(each.moves for each in moving)
    # What is left has room for NODE_CPUS; the others wait.
    await until(lambda: gone not in ray.nodes().values(), "noticed", WITHIN_S)
    await ray.ready(NODE_CPUS)
    fresh = await ray.ask("add", NODE_CPUS)
    await ray.ready(4)
    assert fresh in ray.nodes().values()
    assert all(ray.fleet.replica(each).incarnation > 1 for each in lost)


async def test_a_killed_server_leaves_no_actor_and_no_replica(
    ray: Bench, model: Path, tmp_path: Path
) -> None:
    given = {
        "name": "other",
        "replicas": 1,
        "launcher": "ray",
        "ray_address": ray.cluster.address,
        "listen": "127.0.0.1:0",
        "control": f"unix://{tmp_path}/c.sock",
        "replica": {"model": str(model), "kv_blocks": 64, "threads": 1},
    }
    before = set(ray.cluster.workers())
    command = [sys.executable, "-m", "infer_engine", "serve", "--settings", json.dumps(given)]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, cwd=tmp_path)
    try:
        await until(lambda: set(ray.cluster.workers()) - before, "its replica", WITHIN_S)
        mine = set(ray.cluster.workers()) - before
    finally:
        server.kill()
        await server.wait()
    await until(lambda: not mine & set(ray.cluster.workers()), "its replica is gone", WITHIN_S)

    def named() -> list[str]:
        return [name for name in ray.cluster.ask("actors") if name.startswith("other-")]

    await until(lambda: not named(), "its actor is gone", WITHIN_S)
    await ray.all_whole(await ray.streaming(2))


async def test_a_wrong_token_is_told(
    cluster: RayCluster, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    with pytest.raises(NoClusterError, match="token") as told:
        await enter_ray(settings(model, ray_address=cluster.address))
    assert cluster.address in str(told.value)


async def test_a_cluster_that_asks_for_no_token_is_refused_unless_told(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_cluster = RayCluster(auth=False)
    try:
        monkeypatch.setenv("RAY_TMPDIR", str(open_cluster.directory))
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
        given = settings(model, ray_address=open_cluster.address)
        with pytest.raises(NoClusterError, match="asks nobody for a token"):
            await enter_ray(given)
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        await (await enter_ray(given)).close()
    finally:
        open_cluster.close()


async def test_the_head_goes_and_the_server_lives(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray ends a driver whose cluster is gone; the server is none."""
    cluster = RayCluster()
    try:
        cluster.ask("add", NODE_CPUS)
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        async with entered(settings(model, replicas=1, ray_address=cluster.address)) as on_ray:
            fleet, _ = fleet_of(on_ray)
            events: list[FeedItem] = []
            fleet.feed.subscribe(events.append)
            await fleet.start()
            await until(lambda: fleet.capacity.ready_replicas(), "ready", WITHIN_S)
            await asyncio.to_thread(cluster.ask, "kill-head")
            await until(lambda: not fleet.capacity.ready_replicas(), "lost", WITHIN_S)
            messages = [item.message or "" for item in events if isinstance(item, Event)]
            assert any("Ray cluster" in message for message in messages), messages
            await fleet.stop()
        await until(lambda: not cluster.workers(), "no orphan", WITHIN_S)
    finally:
        cluster.close()
