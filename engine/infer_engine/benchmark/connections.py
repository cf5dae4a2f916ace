"""Part ``connections``: what it costs the gateway to hold 2,000 streams of 2 tokens/s.

The fleet is simulated, in the server's process and slow, so nearly all that the server computes is the
gateway's. The clients are a process of their own on the same machine.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from infer_engine.benchmark.engine_server import EngineServer, engine_server
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.many_streams import OPEN_TIMEOUT_S
from infer_engine.benchmark.processes import cpu_seconds
from infer_engine.benchmark.results import Result, result
from infer_engine.benchmark.setup import Setup
from infer_engine.gateway.load import PERIOD_S, WINDOW
from infer_engine.protocol import GatewayStatus

STREAMS = 2_000
REPLICAS = 8
WINDOW_S = 30.0
WANTED_TOKENS_PER_S = 2.0
#: Weights dominate its steps, so that they take about as long whatever is in the batch; the speed makes them
#: half a second.
DEPLOYMENT, SPEED = "70b@4xh100", 0.0215
#: How often the gateway is asked how late its loop runs, and how many seconds each answer covers.
LAG_PERIOD_S, LAG_WINDOW_S = 2.0, PERIOD_S * WINDOW


@dataclass(slots=True)
class Held:
    """One window with all streams open."""

    begun: int
    lost: int
    #: Text that came, and tokens that the fleet made meanwhile.
    frames: int
    made_tokens: int
    window_s: float
    open_s: float
    cpu: float
    idle_rss_bytes: int
    rss_bytes: int
    #: Just after all had begun, and then while they were held.
    opening: GatewayStatus
    status: list[GatewayStatus]

    def lag(self, of: Callable[[list[float]], float], name: str) -> float | None:
        """One figure of what the gateway told of its lag, several times; None where it told nothing."""
        told = [each for status in self.status if (each := getattr(status, name)) is not None]
        return of(told) if told else None


def measure(setup: Setup) -> list[Result]:
    streams = max(20, STREAMS // setup.shrink)
    window_s = max(1.0, WINDOW_S / setup.shrink)
    times: list[Held] = []
    for number in range(setup.repeats):
        setup.say(f"  holding {streams} streams, {number + 1} of {setup.repeats}")
        times.append(_held(setup, streams, window_s))
        if times[-1].begun < streams:
            raise BenchError(f"only {times[-1].begun} of {streams} streams began; {times[-1].lost} were lost")
    note = f"{streams} streams, {window_s:.0f} s, all opened in {max(each.open_s for each in times):.1f} s"
    made = [each for each in times if each.made_tokens]
    opening = [each.opening.loop_lag_s for each in times]
    return [
        result("streams held", "", [each.begun - each.lost for each in times], wanted=streams, note=note),
        result(
            "tokens/s per stream",
            "tokens/s",
            [each.frames / each.begun / each.window_s for each in times],
            wanted=0.95 * WANTED_TOKENS_PER_S,
        ),
        result(
            "tokens delivered of those made",
            "ratio",
            [each.frames / each.made_tokens for each in made],
            wanted=0.99,
        ),
        result("server CPU", "% of a core", [each.cpu for each in times]),
        result(
            "memory per connection",
            "KiB",
            [(each.rss_bytes - each.idle_rss_bytes) / each.begun / 1024 for each in times],
        ),
        result("server memory", "MiB", [each.rss_bytes / 2**20 for each in times]),
        _lag("event-loop lag p50", [each.lag(median, "loop_lag_p50_s") for each in times]),
        _lag("event-loop lag p99", [each.lag(median, "loop_lag_p99_s") for each in times]),
        _lag("event-loop lag, worst", [each.lag(max, "loop_lag_s") for each in times]),
        _lag("event-loop lag, worst while they all connect", opening),
    ]


def _lag(measure: str, seconds: list[float | None]) -> Result:
    return result(measure, "ms", [1e3 * each for each in seconds if each is not None])


def _held(setup: Setup, streams: int, window_s: float) -> Held:
    server_settings: dict[str, Any] = {"simulate": DEPLOYMENT, "speed": SPEED}
    with engine_server(
        setup, replicas=REPLICAS, server=server_settings, max_running=max(8, -(-streams // REPLICAS) + 6)
    ) as server:
        pid = server.process.pid
        idle_rss_bytes = _rss_bytes(pid)
        with _client(server, streams, window_s) as lines:
            opened = lines.next(OPEN_TIMEOUT_S + 10)
            cpu_before, made_before, began_s = cpu_seconds(pid), _made_tokens(server), time.monotonic()
            opening = server.gateway_status()
            # What the gateway tells covers its last seconds, which are those of the opening at first.
            time.sleep(min(LAG_WINDOW_S, window_s / 2))
            asked: list[GatewayStatus] = []
            while time.monotonic() - began_s < window_s - LAG_PERIOD_S:
                time.sleep(min(LAG_PERIOD_S, window_s / 4))
                asked.append(server.gateway_status())
            counted = lines.next(window_s + 30)
            taken_s = time.monotonic() - began_s
            return Held(
                begun=counted["begun"],
                lost=counted["lost"],
                frames=counted["frames"],
                made_tokens=_made_tokens(server) - made_before,
                window_s=counted["window_s"],
                open_s=opened["open_s"],
                cpu=100 * (cpu_seconds(pid) - cpu_before) / taken_s,
                idle_rss_bytes=idle_rss_bytes,
                rss_bytes=_rss_bytes(pid),
                opening=opening,
                status=asked or [server.gateway_status()],
            )


class _Lines:
    """What a process says, a JSON document at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def next(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        late = threading.Timer(timeout_s, self._process.kill)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise BenchError(f"the clients ended, or said nothing for {timeout_s:.0f} s")
        return json.loads(line)


@contextmanager
def _client(server: EngineServer, streams: int, window_s: float) -> Generator[_Lines]:
    url = httpx2.URL(server.base_url)
    command = [sys.executable, "-m", "infer_engine.benchmark.many_streams", url.host, str(url.port)]
    command += [server.model, str(streams), str(window_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield _Lines(process)
    finally:
        process.kill()
        process.communicate()


def _made_tokens(server: EngineServer) -> int:
    with httpx2.Client(trust_env=False, timeout=30.0) as client:
        page = client.get(f"{server.base_url}/metrics").text
    return int(
        sum(float(each) for each in re.findall(r"^vllm:generation_tokens_total\{[^}]*\} (\S+)", page, re.M))
    )


def _rss_bytes(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    if found is None:
        raise BenchError("/proc does not tell the server's memory")
    return int(found[1]) * 1024
