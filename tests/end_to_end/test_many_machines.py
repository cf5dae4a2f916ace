"""A replica that no server launched: it joins over TCP, dies under requests, outlives the server, leaves."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from infer_engine.protocol import Replica
from support.processes import children, wait_gone
from support.server import EngineServer, short_directory
from support.tiny_model import write_tiny_gguf

#: For a machine that does many other things.
PATIENCE_S = 90.0
POLL_S = 0.05
PROMPTS = [f"{number} machines" for number in range(6)]
MAX_TOKENS = 200


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(POLL_S)
    return value


def replica_command(*options: str) -> list[str]:
    return [sys.executable, "-m", "infer_engine", "replica", *options]


@contextmanager
def joiner(directory: Path, endpoint: str) -> Generator[subprocess.Popen[bytes]]:
    with (directory / "joiner.log").open("wb") as log:
        process = subprocess.Popen(
            replica_command(
                f"--join={endpoint}",
                f"--server-key={directory / 'state' / 'join-key.pub'}",
                f"--key={directory / 'replica-key'}",
                "--id=far",
            ),
            stderr=log,
            env={**os.environ, "INFER_CONSOLE_CACHE": str(directory / "cache")},
        )
    try:
        yield process
    finally:
        family = [*children(process.pid), process.pid]
        process.kill()
        process.wait(PATIENCE_S)
        assert wait_gone(family) == []


@contextmanager
def server(directory: Path, replicas: int, listen: str) -> Generator[EngineServer]:
    made = EngineServer(
        directory,
        {
            "replicas": replicas,
            "join_listen": listen,
            "join_keys": str(directory / "keys"),
            "state_dir": str(directory / "state"),
            "replica": {
                "model": str(directory / "tiny.gguf"),
                "kv_blocks": 128,
                "threads": 1,
                "dtype": "fp32",
            },
        },
        log_name=f"log{replicas}",
    )
    try:
        made.wait_listening()
        yield made
    finally:
        made.stop()


def far(server: EngineServer) -> Replica | None:
    return next((each for each in server.status().replicas if each.id == "far"), None)


def ready(server: EngineServer) -> Replica:
    def there() -> Replica | None:
        replica = far(server)
        return replica if replica is not None and replica.state == "ready" else None

    found: Replica = until(there, "the joined replica is ready")
    return found


def answer(server: EngineServer, prompt: str) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0}
    with server.gateway() as client:
        reply = client.post("/v1/completions", json=body, timeout=PATIENCE_S)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["text"])


def running_there(server: EngineServer) -> bool:
    with server.control() as client:
        rows = client.get("/control/v1/requests").json()["requests"]
    return any(row["replica"] == "far" and row["generated_tokens"] for row in rows)


def stopped_under_requests(server: EngineServer, pid: int, pool: ThreadPoolExecutor) -> "list[Future[str]]":
    """Requests, some of which a worker has that does not go on with them."""
    for _ in range(20):
        answers = [pool.submit(answer, server, prompt) for prompt in PROMPTS]
        until(lambda: running_there(server) or all(each.done() for each in answers), "requests run")  # noqa: B023
        os.kill(pid, signal.SIGSTOP)
        if running_there(server):
            return answers
        os.kill(pid, signal.SIGCONT)
        for each in answers:
            each.result(PATIENCE_S)
    raise AssertionError("the joined replica was given no request that lasted")


@pytest.mark.timeout(400)
def test_it_joins_dies_under_requests_joins_the_next_server_and_leaves() -> None:
    with short_directory() as directory, ThreadPoolExecutor(len(PROMPTS)) as pool:
        write_tiny_gguf(directory / "tiny.gguf")
        shown = subprocess.run(
            replica_command(f"--key={directory / 'replica-key'}", "--public-key"),
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        (directory / "keys").write_bytes(shown.stdout)
        (directory / "keys").chmod(0o600)
        with server(directory, 1, "127.0.0.1:0") as first:
            endpoint = str(first.hello["join"])
            with joiner(directory, endpoint) as process:
                first.wait_ready(1)
                joined = ready(first)
                assert (joined.launcher, joined.incarnation, joined.kv.total) == ("joined", 1, 128)
                undisturbed = list(pool.map(lambda prompt: answer(first, prompt), PROMPTS))
                assert joined.pid is not None
                answers = stopped_under_requests(first, joined.pid, pool)
                os.kill(joined.pid, signal.SIGKILL)
                assert [each.result(PATIENCE_S) for each in answers] == undisturbed
                until(lambda: (now := far(first)) and now.incarnation > 1, "it joins again")
                first.stop()
                with server(directory, 0, endpoint.removeprefix("tcp://")) as second:
                    ready(second)
                    assert answer(second, PROMPTS[0]) == undisturbed[0]
                    process.terminate()
                    assert process.wait(PATIENCE_S) == 0
                    said = (directory / "joiner.log").read_text()
                    assert "leaving: its requests end here or go on elsewhere, within 25 s" in said
                    assert f"left {endpoint}" in said
                    until(lambda: far(second) is None, "the place of one that left is given up")
                    assert second.errors == []
