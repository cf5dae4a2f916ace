"""Looking back at a real server: a timeline whose split sums up, and a recording that folds to a picture."""

from pathlib import Path
from typing import Any

import pytest
from infer_console.recording import open_recording
from infer_console.state.fold import ConsoleState
from support.cli import Run
from support.eventually import eventually
from support.folding import fold_all
from support.server import EngineServer


@pytest.fixture
def answered(engine: EngineServer) -> str:
    """The id of a request that was streamed to its end."""
    body = {"model": "tiny", "prompt": "hello there", "max_tokens": 8, "ignore_eos": True, "stream": True}
    with engine.gateway() as http, http.stream("POST", "/v1/completions", json=body) as response:
        response.read()
        return response.headers["x-request-id"]


def test_a_timeline_from_the_first_byte_in_to_the_first_byte_out(run: Run, answered: str) -> None:
    document = run("timeline", answered, "--json").document
    kinds = [entry["kind"] for entry in document["entries"]]
    assert kinds[:7] == [
        "arrived",
        "received",
        "authenticated",
        "tokenized",
        "routed",
        "queued",
        "admitted",
    ]
    assert {"prefill", "first_token", "first_byte", "finished"} <= set(kinds)
    split = document["ttft_split_s"]
    assert None not in split.values()
    assert sum(split[part] for part in ("gateway", "tokenize", "queue", "prefill", "send")) == split["total"]
    table = run("timeline", answered)
    assert table.code == 0
    assert "gateway" in table.out
    assert "first_byte" in table.out


def test_a_timeline_of_nobody(run: Run) -> None:
    result = run("timeline", "ffffff")
    assert (result.code, result.out) == (1, "")
    assert "unknown_request" in result.err


def test_the_fleet_says_where_the_time_went(run: Run, answered: str) -> None:
    def asked() -> dict[str, Any]:
        return run("status", "--json").document["totals"]["ttft_split_s"]

    eventually(lambda: asked()["requests"] >= 1)  # the figures are made once in a while
    split = asked()
    assert split["slowest"]["total"] is not None
    assert split["p95"]["total"] >= split["p50"]["total"]


def test_what_the_recorder_has_is_a_recording(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "incident.icr"
    result = run("record", str(path), "--last", "10m")
    assert (result.code, result.out) == (0, "")
    file, reader = open_recording(path)
    state = ConsoleState("recording")
    with file:
        assert fold_all(state, reader.envelopes()) > 0
    assert set(state.picture(0.0, 0.0).replicas) == {"r0", "r1"}
    again = run("record", str(path))
    assert again.code == 1
    assert "File exists" in again.err


def test_what_comes_is_a_recording(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "live.icr"
    assert run("record", str(path), "--duration", "1.5s").code == 0
    file, reader = open_recording(path)
    state = ConsoleState("recording")
    with file:
        assert fold_all(state, reader.envelopes()) > 0
    assert set(state.picture(0.0, 0.0).replicas) == {"r0", "r1"}


def test_history_and_recorder_over_http(engine: EngineServer) -> None:
    with engine.control() as client:

        def sampled() -> dict[str, object] | None:
            history = client.get("/control/v1/history?seconds=60&step=2").json()
            return history if any(each is not None for each in history["fleet"]["running"]) else None

        history = eventually(sampled)
        assert set(history["replicas"]) == {"r0", "r1"}  # type: ignore[call-overload]
        assert client.get("/control/v1/hello").json()["fleet"]["recorder"]["max_bytes"] == 64 << 20
        for wrong in ("history?step=0", "history?seconds=x", "recorder?from=9&to=1", "watch?since=x"):
            answer = client.get(f"/control/v1/{wrong}")
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_field"), wrong
        assert client.get("/control/v1/history?replicas=r9").status_code == 404
        assert client.get("/control/v1/watch?since=old:5").status_code == 410
