"""A simulated fleet to look at, with or without load: in processes of their own, on a core that is not the
console's where there are two."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from infer_console.embedded import EmbeddedEngine
from infer_console.ui.benchmark.terminal import TerminalError

#: About 30 steps a second of real time.
DEPLOYMENT, SPEED = "llama-70b@4xh100", 0.33
RUNNING, WAITING = 64, 40
READY_S, BUSY_S, POLL_S = 120.0, 60.0, 0.2


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    engine: EmbeddedEngine

    @property
    def control_url(self) -> str:
        return self.engine.target.url

    def status(self) -> dict[str, Any]:
        path = self.control_url.removeprefix("unix://")
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=30.0) as client:
            answer = client.get("http://localhost/control/v1/state")
            answer.raise_for_status()
            return answer.json()

    def wait(self, what: str, seen: Any, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                if seen(self.status()):
                    return
            if time.monotonic() > deadline:
                raise TerminalError(f"the fleet was not {what} within {timeout_s:.0f} s")
            time.sleep(POLL_S)


@contextlib.contextmanager
def simulated_fleet(replicas: int = 2, kv_blocks: int | None = None) -> Generator[SimulatedFleet]:
    """Ready and idle."""
    replica: dict[str, Any] = {"max_running": RUNNING}
    if kv_blocks is not None:
        replica["kv_blocks"] = kv_blocks
    settings = {
        "listen": "127.0.0.1:0",
        "simulate": DEPLOYMENT,
        "speed": SPEED,
        "replicas": replicas,
        "max_connections_per_client": 1024,
        "replica": replica,
    }
    with EmbeddedEngine(settings) as engine:
        fleet = SimulatedFleet(engine)
        pin([engine.pid or 0], 0)
        fleet.wait(
            "ready",
            lambda status: status["totals"]["ready"] == replicas and engine.gateway_url is not None,
            READY_S,
        )
        yield fleet


@contextlib.contextmanager
def busy(fleet: SimulatedFleet, replicas: int = 2) -> Generator[None]:
    """Every replica runs and holds back as many as :data:`RUNNING` and :data:`WAITING` say."""
    url = fleet.engine.gateway_url
    if url is None:
        raise TerminalError("the fleet has no gateway")
    number = replicas * (RUNNING + WAITING)
    load = subprocess.Popen(
        [sys.executable, "-m", "infer_console.ui.benchmark.load", url, str(number)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        pin([load.pid], 0)
        fleet.wait("busy", lambda status: status["totals"]["running"] >= replicas * RUNNING * 0.9, BUSY_S)
        yield
    finally:
        load.terminate()
        load.communicate(timeout=10)


def pin(processes: Sequence[int], core: int) -> None:
    """Give processes a core of their own, where there are two and the system allows it."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return
    for process in processes:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                os.sched_setaffinity(int(thread), {cores[core]})
