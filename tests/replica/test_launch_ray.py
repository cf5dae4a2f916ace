"""Replicas on a Ray cluster, below the seam: what the driver says is scripted, everything from there to the
fleet is real. The driver itself meets a real cluster in ``make test-ray``."""

import asyncio
import importlib.util
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from infer_engine.fleet.feed import FeedItem
from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.on_ray import enter_ray, settled
from infer_engine.protocol import Event
from infer_engine.replica import launch_ray, ray_process, ray_sidecar
from infer_engine.replica.launch_ray import NoClusterError, RayReplicas
from infer_engine.replica.ray_messages import Connected, Node, Place
from infer_engine.replica.ray_room import device_for, fits, shortage, threads_for
from infer_engine.replica.ray_sidecar import Sidecar, SidecarError
from infer_engine.settings import ReplicaSettings, ServerSettings, SettingsError, validate
from support.fake_ray import FakeRay
from support.fleets import finished, spec, until


def node(cpus: float, gpus: float = 0.0) -> Node:
    return Node(id="n", address="10.0.0.1", cpus=cpus, gpus=gpus)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_ray, "LOOK_S", 0.01)
    monkeypatch.setattr(launch_ray, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(ray_process, "LINK_GRACE_S", 0.2)


@dataclass
class Bench:
    cluster: FakeRay
    fleet: Fleet
    ray: RayReplicas
    feed: list[FeedItem] = field(default_factory=list)

    async def ready(self, count: int) -> None:
        await until(lambda: len(self.fleet.capacity.ready_replicas()) == count, f"{count} ready")

    def failures(self, replica: str) -> list[str]:
        events = [item for item in self.feed if isinstance(item, Event) and item.replica == replica]
        return [event.message or "" for event in events if event.reason == "failed"]


@asynccontextmanager
async def on_fake(cluster: FakeRay, *, replicas: int = 4, place_s: float = 60.0) -> AsyncGenerator[Bench]:
    given = ServerSettings(
        name="bench",
        replicas=replicas,
        seed=7,
        launcher="ray",
        rebalance=False,
        replace_stalled=False,
        replica=ReplicaSettings(block_size=4, kv_blocks=64, max_running=4, admit_limit_ratio=1.0),
    )
    ray = RayReplicas(given.name, "auto", begin=cluster.begin, place_s=place_s)
    fleet = Fleet(settled(given, await ray.connect()), launch=ray.launch, link=ray.link)
    bench = Bench(cluster, fleet, ray)
    fleet.feed.subscribe(bench.feed.append)
    await fleet.start()
    try:
        yield bench
    finally:
        await fleet.stop()
        await ray.close()
        assert cluster.actors == {}


async def test_replicas_are_placed_by_room_and_serve() -> None:
    cluster = FakeRay(0, 4, 4)
    async with on_fake(cluster) as bench:
        await bench.ready(4)
        assert [(place.cpus, place.gpus) for place in cluster.places] == [(2, 0)] * 4
        names = {place.name for place in cluster.places}
        assert {(name.split("-")[0], name.split("-")[2]) for name in names} == {
            ("bench", f"r{number}.1") for number in range(4)
        }
        assert sorted(node.id for node in bench.ray.nodes().values()) == ["n2", "n2", "n3", "n3"]
        for config in cluster.configs:
            assert config.endpoint.startswith("tcp://127.0.0.1:")
            assert config.keys is not None
            assert config.keys.secret == "", "the secret key never leaves its node"
            assert (config.settings.threads, config.settings.sharers) == (2, 2)
        generations = [bench.fleet.submit(spec(4, 8)) for _ in range(8)]
        await finished(*generations)
        assert {each.replica for each in generations} == {"r0", "r1", "r2", "r3"}
        assert {tuple(each.emitted) for each in generations} == {tuple(generations[0].emitted)}


async def test_a_killed_actor_breaks_no_stream() -> None:
    cluster = FakeRay(0, 4, 4)
    cluster.launcher.held = True
    async with on_fake(cluster, replicas=2) as bench:
        await bench.ready(2)
        generations = [bench.fleet.submit(spec(4, 6)) for _ in range(4)]
        lost = [each for each in generations if each.replica == "r0"]
        assert lost
        cluster.launcher.held = False
        cluster.kill_actor("r0.1")
        cluster.launcher.now("r1").runner.release()
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}
        assert all(each.moves == 1 for each in lost)
        await bench.ready(2)
        assert bench.fleet.replica("r0").incarnation == 2
        assert bench.failures("r0") == ["its Ray actor is gone: killed, by whom is not known"]


async def test_a_lost_node_is_a_crash_of_all_its_replicas_which_wait_for_another() -> None:
    cluster = FakeRay(0, 2, 2)
    async with on_fake(cluster) as bench:
        await bench.ready(4)
        generations = [bench.fleet.submit(spec(4, 40)) for _ in range(8)]
        lost = [replica for replica, node in bench.ray.nodes().items() if node.id == "n2"]
        cluster.lose_node("n2")
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}
        for replica in lost:
            assert bench.failures(replica) == ["its node left the Ray cluster"]
        await until(lambda: len(cluster.waiting) == 2, "two wait for room")
        cluster.add_node(2)
        await bench.ready(4)


async def test_what_no_node_has_room_for_says_so_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_process, "WAIT_LEFT_S", 1.0)
    cluster = FakeRay(0, 1)
    async with on_fake(cluster, replicas=2, place_s=0.05) as bench:
        await bench.ready(1)
        (waits,) = {"r0", "r1"} - set(bench.fleet.capacity.ready_replicas())
        await until(lambda: bench.failures(waits), "it has no place")
        assert bench.failures(waits)[0] == (
            "it has no place: no node of the Ray cluster has room: "
            "it needs 1 CPU, and what there is, is taken"
        )
        await until(lambda: len(cluster.places) > 2, "tried again")


async def test_a_connection_that_is_gone_is_noticed_though_ray_says_nothing() -> None:
    cluster = FakeRay(0, 4)
    async with on_fake(cluster, replicas=2) as bench:
        await bench.ready(2)
        cluster.cut("r1.1")
        await until(lambda: bench.failures("r1"), "noticed")
        assert bench.failures("r1") == ["the connection to it on 10.0.0.2 is gone"]
        await bench.ready(2)
        assert bench.fleet.replica("r1").incarnation == 2


async def test_when_the_cluster_goes_streams_wait_until_it_is_back() -> None:
    cluster = FakeRay(0, 4)
    async with on_fake(cluster, replicas=2) as bench:
        await bench.ready(2)
        cluster.launcher.held = True
        generations = [bench.fleet.submit(spec(4, 40)) for _ in range(2)]
        cluster.lose_head("GCS cannot be reached")
        await until(lambda: bench.failures("r0") and bench.failures("r1"), "both are lost")
        assert "the connection to the Ray cluster is lost" in bench.failures("r0")[0]
        assert not bench.fleet.capacity.ready_replicas()
        cluster.launcher.held = False
        cluster.closed = None
        await bench.ready(2)
        await finished(*generations)
        assert {each.finish_reason for each in generations} == {"length"}


async def test_a_node_with_another_version_is_named() -> None:
    cluster = FakeRay(0, 4)
    cluster.version = "0.0.1"
    async with on_fake(cluster, replicas=1) as bench:
        await until(lambda: bench.failures("r0"), "refused")
        assert bench.failures("r0")[0].startswith("node 10.0.0.2 has infer-console 0.0.1, this server has ")
        assert cluster.configs == []


async def test_used_cpu_is_asked_for_when_it_is_looked_at() -> None:
    cluster = FakeRay(0, 4)
    async with on_fake(cluster, replicas=1) as bench:
        await bench.ready(1)
        lifecycle = bench.fleet.members.lifecycles["r0"]
        seen: set[float | None] = set()
        await until(lambda: seen.add(lifecycle.cpu_s()) or len(seen - {None}) > 1, "it grows")


async def test_a_replica_that_fails_for_good_is_not_started_again() -> None:
    cluster = FakeRay(0, 4)
    cluster.launcher.load_error = ("the model does not fit", 3)
    async with on_fake(cluster, replicas=1) as bench:
        await until(lambda: (bench.fleet.replica("r0").error or "").endswith("(not started again)"))
        assert len(cluster.places) == 1


# --- the way in --------------------------------------------------------------------------------------------


async def test_no_way_in_names_the_address() -> None:
    cluster = FakeRay(1)
    cluster.closed = "Could not find any running Ray instance."
    with pytest.raises(NoClusterError) as told:
        await RayReplicas("bench", "10.1.1.1:6379", begin=cluster.begin).connect()
    assert str(told.value) == "the Ray cluster (10.1.1.1:6379): Could not find any running Ray instance."


async def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NoClusterError, match=r"pip install 'infer-console\[ray\]'"):
        await enter_ray(ServerSettings(launcher="ray"))
    assert (await enter_ray(ServerSettings())).replicas is None


def script(text: str) -> ray_sidecar.SpawnDriver:
    async def spawn() -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", text, stdin=pipe, stdout=pipe, stderr=pipe
        )

    return spawn


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("""print('{"type":"not-connected","error":"nobody there"}')""", "^nobody there$"),
        (
            "import sys; print('[2026-11-30 W 7 7] x.cc:1: no such token', file=sys.stderr, flush=True)\n"
            """print('{"type":"not-connected","error":"nobody there","see_log":true}')""",
            r"^nobody there \(x.cc:1: no such token\)$",
        ),
        ("import sys; sys.exit('it broke')", "^the driver ended: it broke$"),
        ("print('hello')", "what nobody understands"),
    ],
)
async def test_a_driver_that_does_not_connect_is_ended_and_its_reason_told(text: str, told: str) -> None:
    with pytest.raises(SidecarError, match=told):
        await Sidecar.begin(script(text), "auto", "bench")


async def test_a_driver_is_spoken_with_line_by_line_until_it_ends() -> None:
    text = """
import sys
sys.stdin.readline()
print('{"type":"connected","cluster":"c","address":"a","nodes":[]}', flush=True)
key = sys.stdin.readline().split('"key":"')[1].split('"')[0]
print('{"type":"running","key":"%s","pid":7}' % key, flush=True)
sys.exit('GCS is gone')
"""
    driver, connected = await Sidecar.begin(script(text), "auto", "bench")
    assert connected == Connected(address="a", nodes=[])
    assert driver.say(Place(key="r0.1", name="x", cpus=1, gpus=0))
    (running,) = [message async for message in driver.messages()]
    assert (running.key, running.pid) == ("r0.1", 7)  # pyright: ignore[reportAttributeAccessIssue]
    assert await driver.close() == "the driver ended with 1: GCS is gone"


def test_token_authentication_is_on_unless_ray_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert ray_sidecar.wants_auth()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert not ray_sidecar.wants_auth()


# --- room --------------------------------------------------------------------------------------------------


def test_threads_are_the_most_with_which_all_fit() -> None:
    assert threads_for(4, [node(0), node(8), node(8)], 0) == 4
    assert threads_for(3, [node(8), node(8)], 0) == 4
    assert threads_for(4, [node(8), node(4)], 0) == 2
    assert threads_for(9, [node(4), node(4)], 0) == 1
    assert threads_for(2, [node(16, 2)], 1) == 8
    assert threads_for(4, [], 0) == 1


def test_auto_takes_a_gpu_each_where_there_are_as_many() -> None:
    assert device_for("auto", 2, [node(8, 1), node(8, 1)]) == "cuda"
    assert device_for("auto", 3, [node(8, 1), node(8, 1)]) == "cpu"
    assert device_for("auto", 0, [node(8)]) == "cpu"
    assert device_for("cpu", 1, [node(8, 4)]) == "cpu"
    given = ServerSettings(launcher="ray", replicas=2)
    assert settled(given, [node(8, 2)]).replica.threads == 4
    assert settled(given, [node(8, 2)]).replica.device == "cuda"


def test_a_shortage_says_what_is_short() -> None:
    assert fits(node(8, 1), 2, 1) == 1
    assert "the largest has 4 CPU" in shortage(8, 0, [node(4)])
    assert "it needs 1 CPU and 1 GPU" in shortage(1, 1, [node(4)])
    assert "what there is, is taken" in shortage(4, 0, [node(4)])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ray_address": "10.0.0.1:6379"}, "ray_address is for launcher ray"),
        ({"launcher": "ray", "ray_address": "ray://10.0.0.1:10001"}, "ray_address"),
        ({"launcher": "ray", "simulate": "70b@4xh100"}, "launched inproc"),
    ],
)
def test_settings_that_do_not_go_together_are_told(given: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        validate(ServerSettings, given)
