"""Alive, ready and moving are three answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from infer_engine.gateway.load import GatewayLoad
from infer_engine.protocol import Replica
from support.gateway import Gateway, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_ready_follows_the_replicas_and_alive_does_not(gateway: Gateway) -> None:
    for path in ("/livez", "/readyz", "/health"):
        assert (await gateway.client.get(path)).status_code == 200
    gateway.fleet.replicas = [
        Replica(id="r0", state="starting", load_progress=0.4),
        Replica(id="r1", state="failed"),
    ]
    response = await gateway.client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["reason"] == "r0 is starting (40% loaded), r1 is failed"
    assert "retry-after" in response.headers
    for path in ("/livez", "/health"):
        assert (await gateway.client.get(path)).status_code == 200


async def test_a_server_of_others_that_is_gone_is_not_said_to_start(gateway: Gateway) -> None:
    why = "127.0.0.1:9: ConnectError: All connection attempts failed"
    gateway.fleet.replicas = [
        Replica(id="r0", state="starting", launcher="upstream", error=why),
        Replica(id="r1", state="starting", launcher="upstream"),
        Replica(id="r2", state="starting", launcher="upstream", error="127.0.0.1:8: it is loading"),
    ]
    response = await gateway.client.get("/readyz")
    assert response.json()["reason"] == (
        f"r0 is not reachable: {why}, r1 is starting, r2 is not ready: 127.0.0.1:8: it is loading"
    )


@pytest.mark.parametrize(
    ("healths", "status"),
    [(["ok", "idle"], 200), (["ok", "stalled"], 200), (["stalled", "bad"], 503), ([None, None], 200)],
)
async def test_progress_is_stalled_only_when_nothing_moves(
    gateway: Gateway, healths: list[Any], status: int
) -> None:
    gateway.fleet.replicas = [
        Replica(id=f"r{number}", state="ready", health=health, step_age_s=1.5)
        for number, health in enumerate(healths)
    ]
    response = await gateway.client.get("/health/progress")
    assert response.status_code == status
    assert [each["progress"] for each in response.json()["replicas"]] == healths
    assert response.json()["replicas"][0]["step_age_s"] == 1.5


async def test_load_measures_the_lag_of_the_loop_and_ends() -> None:
    load = GatewayLoad(lambda: 7)
    assert load.status("http://x").loop_lag_s is None
    load.start()
    tasks = len(asyncio.all_tasks())
    seen: Callable[[], object] = lambda: load.loop_lag_s is not None  # noqa: E731
    await until(seen, "a measurement")
    status = load.status("http://x")
    assert (status.url, status.connections) == ("http://x", 7)
    assert status.loop_lag_s is not None
    assert status.loop_lag_s >= 0
    await load.close()
    assert len(asyncio.all_tasks()) == tasks - 1
