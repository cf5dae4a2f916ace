"""SIGTERM is a drain: what runs may go on for a while, nothing new is taken, and what is cut is told so."""

import json
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
from support.eventually import eventually
from support.server import STOP_TIMEOUT_S, EngineServer, serving, short_directory

#: A token in tenths of a second, so that nothing ends by itself.
SLOW: dict[str, Any] = {"simulate": "8b@1xh100", "speed": 0.05}


@contextmanager
def slow_server(drain_s: float) -> Generator[tuple[EngineServer, httpx2.Client]]:
    with (
        serving(replicas=1, replica={"max_running": 1}, drain_s=drain_s, **SLOW) as server,
        server.gateway() as client,
    ):
        yield server, client


def ask(client: httpx2.Client, **fields: object) -> dict[str, object]:
    model = client.get("/v1/models").json()["data"][0]["id"]
    return {"model": model, "prompt": [50] * 20, "max_tokens": 1000, "ignore_eos": True, **fields}


def open_stream(stack: ExitStack, client: httpx2.Client) -> Iterator[str]:
    """Its lines, the first of them read: of one that waits that is a ping."""
    response = stack.enter_context(client.stream("POST", "/v1/completions", json=ask(client, stream=True)))
    lines = (line for line in response.iter_lines() if line)
    next(lines)
    return lines


def last_code(lines: Iterator[str]) -> str:
    """The code of the error with which a stream ends."""
    *_, last = lines
    return json.loads(last.removeprefix("data: "))["error"]["code"]


def test_sigterm_drains_and_what_takes_too_long_ends_with_an_error_of_its_own() -> None:
    with slow_server(drain_s=4.0) as (server, client), ExitStack() as stack:
        running, queued = open_stream(stack, client), open_stream(stack, client)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/readyz").json()["reason"] == "the server is stopping"
        assert client.get("/livez").status_code == 200
        refused = client.post("/v1/completions", json=ask(client))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-request-dropped-reason"] == "draining"
        assert next(running).startswith("data: ")
        assert (last_code(running), last_code(queued)) == ("shutting_down", "shutting_down")
        assert server.process.wait(STOP_TIMEOUT_S) == 0
        assert server.errors == []


def test_a_second_sigterm_ends_what_runs_at_once() -> None:
    with slow_server(drain_s=600.0) as (server, client), ExitStack() as stack:
        running = open_stream(stack, client)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: client.get("/readyz").status_code == 503)
        server.process.send_signal(signal.SIGTERM)
        assert last_code(running) == "shutting_down"
        assert server.process.wait(STOP_TIMEOUT_S) == 0
        assert server.errors == []


def test_a_gateway_that_others_reach_needs_keys() -> None:
    with short_directory() as directory:
        keys = directory / "keys.toml"
        for given, code, says in (
            ({}, 2, "without API keys everybody"),
            ({"api_keys": str(keys)}, 1, "No such file"),
        ):
            server = EngineServer(directory, {"listen": "0.0.0.0:0", **given})
            assert server.process.wait(STOP_TIMEOUT_S) == code
            assert says in server.log
            assert server.log.count("\n") == 1
            server.stop()
