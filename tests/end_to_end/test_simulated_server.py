"""A whole simulated server: sixteen replicas of a 70B model in one process, marked wherever one looks."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from infer_engine.planner import parse_deployment
from support.eventually import eventually
from support.server import EngineServer, serving

DEPLOYMENT = parse_deployment("llama-70b@4×h100")
#: As much KV memory as the GPUs have.
REPLICA = {"kv_blocks": None, "max_running": 64}


@pytest.fixture(scope="module")
def server() -> Generator[EngineServer]:
    with serving(simulate="llama-70b@4×h100", replicas=16, speed=5.0, seed=3, replica=REPLICA) as made:
        yield made


def test_it_is_one_process_with_all_its_replicas_ready(server: EngineServer) -> None:
    status = server.status()
    assert (status.totals.ready, status.totals.replicas) == (16, 16)
    assert server.children() == []
    # The server's own would have somebody kill that for one of them.
    assert {replica.pid for replica in status.replicas} == {None}
    assert {replica.device for replica in status.replicas} == {"4×H100"}


def test_a_lone_request_has_the_latency_of_the_planner(server: EngineServer) -> None:
    with server.gateway() as client:
        reply = client.post(
            "/v1/completions",
            json={"model": "llama-3.1-70b", "prompt": list(range(5, 205)), "max_tokens": 12},
        )
    assert reply.status_code == 200, reply.text
    text = reply.json()["choices"][0]["text"]
    assert reply.json()["usage"] == {"prompt_tokens": 200, "completion_tokens": 12, "total_tokens": 212} | {
        key: value for key, value in reply.json()["usage"].items() if key.endswith("details")
    }
    assert text.isprintable()
    with server.control() as client:
        row = client.get(f"/control/v1/requests/{reply.headers['x-request-id']}").json()

    assert row["ttft_s"] == pytest.approx(DEPLOYMENT.prefill_s(200), rel=1e-6)
    assert row["last_itl_s"] == pytest.approx(DEPLOYMENT.step_s([(210, 1)]), rel=1e-6)
    assert server.status().totals.itl_s.p50 == pytest.approx(DEPLOYMENT.step_s([(205, 1)]), rel=0.02)


def test_everything_it_says_is_marked(server: EngineServer) -> None:
    with server.control() as client:
        status = client.get("/control/v1/state").json()
        assert status["fleet"]["simulated"] is True
        assert status["fleet"]["model"] == "llama-3.1-70b"
        simulation = status["fleet"]["simulation"]
        assert simulation["deployment"] == "llama-3.1-70b@4×h100"
        assert (simulation["speed"], simulation["seed"]) == (5.0, 3)
        assert all(replica["simulated"] for replica in status["replicas"])
        for path in ("requests", "events", "operations", "replicas/r3/blocks", "limits", "tenants"):
            assert client.get(f"/control/v1/{path}").json()["simulated"] is True, path
    with server.gateway() as client:
        for path in ("/v1/models", "/health", "/metrics", "/v1/nothing"):
            assert client.get(path).headers["x-infer-simulated"] == "llama-3.1-70b@4xh100", path
        page = client.get("/metrics").text
    assert 'infer_simulated{deployment="llama-3.1-70b@4×h100",model_name="llama-3.1-70b"} 1.0' in page
    assert 'infer_simulation_speed{model_name="llama-3.1-70b"} 5.0' in page


def test_test_traffic_runs_on_all_of_it_and_a_drain_empties_one(server: EngineServer) -> None:
    with server.control() as client:
        body = {"profile": "chat", "rate_per_s": 100, "duration_s": 300}
        assert client.post("/control/v1/injections", json=body).status_code == 200
        eventually(lambda: all((replica.running or 0) > 0 for replica in server.status().replicas))
        drained = client.post("/control/v1/replicas/r2:drain", json={"deadline_s": 600})
        assert drained.status_code in (200, 202), drained.text
        eventually(lambda: server.status().replicas[2].state == "drained")
        assert client.get("/control/v1/replicas/r2/blocks").json()["blocks"][0]["state"] != "used"
        client.request("DELETE", "/control/v1/injections", content=json.dumps({}))
    assert server.errors == []


def test_what_does_not_fit_is_refused_with_its_numbers(tmp_path: Path) -> None:
    broken = EngineServer(tmp_path, {"simulate": "llama-70b@1×h100"})
    assert broken.process.wait(60) == 2
    assert "80.0 GB of memory, 141.1 GB of weights" in broken.log
    assert broken.process.stdout is not None
    broken.process.stdout.close()
