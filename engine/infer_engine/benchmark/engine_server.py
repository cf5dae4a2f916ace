"""Our own server to measure, on a free port and a private socket; ended with everything that it started."""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from infer_engine.benchmark.client import Client
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import POLL_S, ServerProcess, free_port
from infer_engine.benchmark.setup import Setup
from infer_engine.protocol import GatewayStatus, Replica, Status

#: The first start may fetch the model.
READY_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class EngineServer:
    process: ServerProcess
    base_url: str
    control_url: str
    model: str
    #: The first one, as the control API tells it.
    replica: Replica
    #: From starting the process to all replicas being ready.
    start_s: float

    def client(self) -> Client:
        return Client(self.base_url, self.model)

    def gateway_status(self) -> GatewayStatus:
        return _status(self.control_url).fleet.gateway


@contextmanager
def engine_server(
    setup: Setup,
    *,
    replicas: int = 1,
    server: dict[str, Any] | None = None,
    key: str | None = None,
    **replica: Any,
) -> Generator[EngineServer]:
    """A server with all replicas ready. ``server`` are its own settings for this part, ``replica`` those of
    its replicas; ``key`` is an API key where it asks for one."""
    directory = Path(tempfile.mkdtemp(prefix="icb-"))
    port = free_port()
    control_url = f"unix://{directory}/c.sock"
    chosen = {"model": setup.model, "threads": max(1, setup.threads // replicas), **setup.replica, **replica}
    settings = {
        "control": control_url,
        "listen": f"127.0.0.1:{port}",
        "replicas": replicas,
        "replica": chosen,
        **(server or {}),
    }
    base_url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "infer_engine", "serve", "--settings", json.dumps(settings)]
    command.append("--lifeline")
    try:
        with ServerProcess(command, lifeline=True) as process:
            process.wait_until_ok(f"{base_url}/readyz", READY_TIMEOUT_S)
            start_s = _wait_for_all(process, base_url)
            yield EngineServer(
                process,
                base_url,
                control_url,
                _model_name(base_url, key),
                _status(control_url).replicas[0],
                start_s,
            )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_for_all(process: ServerProcess, base_url: str) -> float:
    with httpx2.Client(trust_env=False, timeout=10.0) as client:
        while True:
            states = [each["state"] for each in client.get(f"{base_url}/health/progress").json()["replicas"]]
            waited_s = time.monotonic() - process.started_s
            if all(state == "ready" for state in states):
                return waited_s
            if "failed" in states or waited_s > READY_TIMEOUT_S:
                raise BenchError(f"replicas are {', '.join(states)}:\n{process.log_tail()}")
            time.sleep(POLL_S)


def _status(control_url: str) -> Status:
    transport = httpx2.HTTPTransport(uds=control_url.removeprefix("unix://"))
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=10.0) as client:
        return msgspec.json.decode(client.get("/control/v1/state").content, type=Status)


def _model_name(base_url: str, key: str | None) -> str:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx2.Client(trust_env=False, timeout=10.0, headers=headers) as client:
        return str(client.get(f"{base_url}/v1/models").json()["data"][0]["id"])
