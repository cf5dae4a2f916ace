"""A real engine server for tests: its own process, a tiny model, a unix socket in a short directory, a free
port.

``with serving() as server: ...`` waits until its replicas are ready, always ends it, and asserts that no
process of it is left."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from infer_engine.idle_connections import limits
from infer_engine.protocol import Status
from support.if_match import CurrentVersion
from support.processes import children, wait_gone
from support.tiny_model import write_tiny_gguf

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.05
#: Layers of a tiny model that takes 3 ms for a step, ten times what two layers take: who looks at what runs,
#: or acts on it, finds that it still runs, on a machine that has much else to do as well.
UNHURRIED = 48
#: What every command has to be declared as, one without a body included.
JSON = {"content-type": "application/json"}


class EngineServer:
    """A started server. ``stop`` may be called at any time, and more than once."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any],
        *,
        lifeline: bool = False,
        log_name: str = "log",
        cache: str | None = "cache",
    ) -> None:
        """``cache`` is a folder below ``directory``; None takes the user's own, with the real model in it."""
        self.directory = directory
        self.socket_path = directory / "c.sock"
        self.log_path = directory / log_name
        self.control_url = f"unix://{self.socket_path}"
        self.settings = {"control": self.control_url, "listen": "127.0.0.1:0", "drain_s": 5.0, **settings}
        command = [sys.executable, "-m", "infer_engine", "serve", "--settings", json.dumps(self.settings)]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--lifeline"] if lifeline else command,
                stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **({"INFER_CONSOLE_CACHE": str(directory / cache)} if cache else {})},
            )
        self.hello: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def gateway_url(self) -> str:
        return str(self.hello["gateway"])

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def errors(self) -> list[str]:
        """Lines that the server logged at ERROR or above."""
        return [
            line
            for line in self.log.splitlines()
            if '"level": "ERROR"' in line or '"level": "CRITICAL"' in line
        ]

    def wait_listening(self) -> None:
        """Read the line that the server prints when it listens; fail with its log when it ends before."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        assert readable, f"the server does not listen in time:\n{self.log}"
        line = self.process.stdout.readline()
        assert line, f"the server ended with {self.process.wait(STOP_TIMEOUT_S)}:\n{self.log}"
        self.hello = json.loads(line)

    def wait_ready(self, replicas: int | None = None) -> Status:
        """Until that many replicas are ready (all, when not given)."""
        wanted = replicas if replicas is not None else int(self.settings.get("replicas", 2))
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            status = self.status()
            if status.totals.ready >= wanted:
                return status
            failed = [replica.error for replica in status.replicas if replica.state == "failed"]
            assert not failed, f"a replica failed: {failed}\n{self.log}"
            assert time.monotonic() < deadline_s, f"not ready in time: {status}\n{self.log}"
            time.sleep(POLL_S)

    def status(self) -> Status:
        with self.control() as client:
            return msgspec.json.decode(client.get("/control/v1/state").content, type=Status)

    # ``verify``: nothing here is TLS, and to load the authorities' certificates takes longer than to ask.

    def control(self) -> httpx2.Client:
        return httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(self.socket_path), verify=False, limits=limits()),
            base_url="http://localhost",
            auth=CurrentVersion(),
            timeout=60.0,
            headers=JSON,
        )

    def async_control(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(uds=str(self.socket_path), verify=False, limits=limits()),
            base_url="http://localhost",
            auth=CurrentVersion(),
            timeout=60.0,
            headers=JSON,
        )

    def gateway(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.gateway_url, timeout=60.0, trust_env=False, verify=False)

    def async_gateway(self) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        return httpx2.AsyncClient(
            base_url=self.gateway_url, timeout=60.0, trust_env=False, verify=False, limits=limits
        )

    def children(self) -> list[int]:
        return children(self.pid)

    def stop(self) -> int:
        """End it gracefully (the hard way if that fails); returns the exit code. Nothing of it may be
        left."""
        family = [*self.children(), self.pid]
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(STOP_TIMEOUT_S)
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            left = wait_gone(family)
            assert not left, f"processes left behind: {left}"
        return code


@contextmanager
def short_directory() -> Generator[Path]:
    """A private directory whose path is short enough for unix sockets."""
    directory = Path(tempfile.mkdtemp(prefix="ice-", dir="/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def serving(
    *,
    replicas: int = 1,
    lifeline: bool = False,
    ready: bool = True,
    layers: int = 2,
    replica: dict[str, Any] | None = None,
    **settings: Any,
) -> Generator[EngineServer]:
    """A server on the tiny model, ready unless told otherwise. ``replica`` holds replica settings
    (``kv_blocks``, ``max_running``, ...), ``settings`` server settings."""
    with short_directory() as directory:
        model = write_tiny_gguf(directory / "tiny.gguf", layers=layers)
        server = EngineServer(
            directory,
            {
                "replicas": replicas,
                "replica": {
                    "model": str(model),
                    "kv_blocks": 128,
                    "threads": 1,
                    "dtype": "auto" if "simulate" in settings else "fp32",
                    **(replica or {}),
                },
                **settings,
            },
            lifeline=lifeline,
        )
        try:
            server.wait_listening()
            if ready:
                server.wait_ready()
            yield server
        finally:
            server.stop()
