"""What a server of many replicas costs: alone, watched by streams and by the real console, asked for its
documents."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from infer_console.ui.benchmark.fleet import pin
from infer_console.ui.benchmark.live import first_seen
from infer_console.ui.benchmark.terminal import ConsoleInTerminal
from infer_engine.benchmark.engine_server import EngineServer, engine_server
from infer_engine.benchmark.processes import cpu_seconds
from infer_engine.benchmark.setup import Setup
from scale_clients import Probe, Watch
from scale_table import Row

ROOT = Path(__file__).parents[1]
DEPLOYMENT, SPEED, LOAD = "llama-70b@4xh100", 0.01, 2
SETTLE_S, WINDOW_S = 1.0, 4.0
FLEET_QUERY = "detail=&hz=4"
ROSTER_QUERY = "replicas=r0&detail=roster,blocks&others=status&hz=4"


def server(replicas: int) -> Row:
    with loaded(replicas) as fleet:
        return watching(fleet) | console(fleet) | documents(fleet)


@contextmanager
def loaded(replicas: int, **server: Any) -> Generator[EngineServer]:
    """A simulated fleet in which every replica has LOAD requests, on a core of its own if there are two."""
    settings = {
        "simulate": DEPLOYMENT,
        "speed": SPEED,
        "max_connections": 4_096,
        "max_connections_per_client": 4_096,
        **server,
    }
    with ExitStack() as stack:
        fleet = stack.enter_context(engine_server(Setup(), replicas=replicas, server=settings))
        pin([fleet.process.pid], 0)
        number = LOAD * replicas
        load = subprocess.Popen(
            [sys.executable, str(ROOT / "bench/scale_load.py"), fleet.base_url, fleet.model, str(number)],
            stdin=subprocess.DEVNULL,
        )
        stack.callback(load.wait, 10)
        stack.callback(load.terminate)
        pin([load.pid], -1)
        deadline_s = time.monotonic() + 90
        while document(fleet, "/control/v1/state").json()["totals"]["running"] < 0.95 * number:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{replicas} replicas did not get their {number} requests")
            time.sleep(0.5)
        yield fleet


def document(fleet: EngineServer, path: str) -> httpx2.Response:
    transport = httpx2.HTTPTransport(uds=fleet.control_url.removeprefix("unix://"))
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=60.0) as client:
        answer = client.get(path)
        answer.raise_for_status()
        return answer


def window(fleet: EngineServer, streams: Sequence[str]) -> tuple[float, float | None, list[Watch]]:
    """Per cent of a core that the server used, p99 of a probe in ms, and the streams, of which bytes and
    messages are those a second of the window."""
    watches = [Watch(fleet.control_url, query) for query in streams]
    for each in watches:
        each.start()
    deadline_s = time.monotonic() + 30
    while any(each.snapshot_s is None for each in watches) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(SETTLE_S)
    probe = Probe(fleet.base_url)
    probe.start()
    used_s, began_s = cpu_seconds(fleet.process.pid), time.monotonic()
    before = [(each.bytes, each.messages) for each in watches]
    time.sleep(WINDOW_S)
    taken_s = time.monotonic() - began_s
    used = 100 * (cpu_seconds(fleet.process.pid) - used_s) / taken_s
    for each, (read_bytes, messages) in zip(watches, before, strict=True):
        each.bytes, each.messages = (
            round((each.bytes - read_bytes) / taken_s),
            round((each.messages - messages) / taken_s),
        )
        each.stop()
    return used, probe.percentile_ms(), watches


def watching(fleet: EngineServer) -> Row:
    alone, alone_ms, _ = window(fleet, [])
    one, one_ms, (wide,) = window(fleet, [FLEET_QUERY])
    two, two_ms, _ = window(fleet, [FLEET_QUERY] * 2)
    four, four_ms, _ = window(fleet, [FLEET_QUERY] * 4)
    near, near_ms, (close,) = window(fleet, [ROSTER_QUERY])
    return {
        "server CPU without watchers, %": alone,
        "first console (Fleet) adds, %": one - alone,
        "second console adds, %": two - one,
        "third and fourth add, each, %": (four - two) / 2,
        "one console (Replica) adds, %": near - alone,
        "gateway answers p99, without, ms": alone_ms,
        "p99, one console, ms": one_ms,
        "p99, two, ms": two_ms,
        "p99, four, ms": four_ms,
        "p99, one on Replica, ms": near_ms,
        "Fleet stream, bytes/s": wide.bytes,
        "Fleet stream, messages/s": wide.messages,
        "Replica stream, bytes/s": close.bytes,
        "Replica stream, messages/s": close.messages,
        "snapshot, bytes": wide.snapshot_bytes,
        "snapshot, ms": None if wide.snapshot_s is None else 1_000 * wide.snapshot_s,
    }


def documents(fleet: EngineServer) -> Row:
    with httpx2.Client(base_url=fleet.base_url, trust_env=False, timeout=60.0) as client:
        metrics_ms, page = timed(lambda: client.get("/metrics"))
    status_ms, status = timed(lambda: document(fleet, "/control/v1/state"))
    began_s = time.perf_counter()
    arguments = ["--connect", fleet.control_url, "status", "--json"]
    code = "import sys; from infer_console.cli import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, timeout=60)
    command_ms = 1_000 * (time.perf_counter() - began_s)
    told = status.json()["fleet"]["recorder"]
    recording = document(fleet, "/control/v1/recorder").content
    return {
        "/metrics, ms": metrics_ms,
        "/metrics, bytes": len(page.content),
        "status document, ms": status_ms,
        "status document, bytes": len(status.content),
        "status --json, whole command, ms": command_ms,
        "recorder, bytes/s": len(recording) / max(1.0, told["until_at"] - told["from_at"]),
        "recorder, Hz": told["hz"],
        "server memory, MiB": resident_mib(fleet.process.pid),
    }


def timed(ask: Callable[[], httpx2.Response]) -> tuple[float, httpx2.Response]:
    """The median of three in ms, and the last answer."""
    taken_ms: list[float] = []
    while True:
        began_s = time.perf_counter()
        answer = ask()
        taken_ms.append(1_000 * (time.perf_counter() - began_s))
        if len(taken_ms) == 3:
            return median(taken_ms), answer


def console(fleet: EngineServer) -> Row:
    """The real one, on the Fleet screen."""
    arguments = ["--connect", fleet.control_url, "--fps", "4", "--read-only"]
    with ConsoleInTerminal(arguments) as terminal:
        pin([terminal.process.pid], -1)
        deadline_s = time.monotonic() + 30
        picture = None
        while picture is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
            picture = first_seen(terminal, lambda lines: any("RUN" in line for line in lines))
        frame = first_seen(terminal, lambda lines: any(line.strip() for line in lines))
        time.sleep(SETTLE_S)
        pin([terminal.process.pid], -1)  # threads that came since
        terminal.forget()
        used_s, began_s = terminal.cpu_s(), time.monotonic()
        time.sleep(WINDOW_S)
        taken_s = time.monotonic() - began_s
        began = terminal.started_s
        return {
            "console CPU, %": 100 * (terminal.cpu_s() - used_s) / taken_s,
            "console memory, MiB": terminal.rss_mib(),
            "console to terminal, bytes/s": terminal.written_bytes / taken_s,
            "console first frame, s": None if frame is None else frame - began,
            "console first picture of the fleet, s": None if picture is None else picture - began,
        }


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
