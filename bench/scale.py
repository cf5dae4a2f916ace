"""How the server, the watch stream and the console grow with the fleet: 1 to 1,000 simulated replicas.

``python bench/scale.py`` measures every part at every size (about five minutes), prints one table, and
writes it with the machine to ``bench/results/scale-MACHINE.json`` and into ``docs/scale.md``. ``--only PART``
and ``--replicas N …`` measure some of it; the file keeps the rest. Parts:

- ``router``: decisions of the real router among replicas that are only told about (no step loops).
- ``report``: what one step report costs the server, from its bytes to the feed (no socket, no step loops).
- ``server``: ``infer-console serve --simulate`` with two requests on every replica, watched by 0, 1, 2 and
  4 streams as the Fleet screen asks for, and by one as the Replica screen does; by the real console in a
  terminal of 200x50 at 4 Hz; its documents, ``/metrics`` and the recorder.
- ``mqtt``: an idle fleet and a real mosquitto (left out where there is none).

The step loops of simulated replicas run in the server's process, which those of real ones do not: what they
cost is in the row "without watchers" and in no other; rows about watchers are what comes on top. So that they
leave room the replicas are slow: about one step a second each.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
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
from infer_engine.benchmark.machine import describe, file_name
from infer_engine.benchmark.processes import cpu_seconds, free_port
from infer_engine.benchmark.routing import LargeFleet
from infer_engine.benchmark.setup import Setup
from scale_report import ReportedFleet
from scale_table import read, table, write_docs, write_json

ROOT = Path(__file__).parents[1]
SIZES = (1, 10, 100, 300, 1_000)
PARTS = ("router", "report", "server", "mqtt")
#: Of each replica, in the router's index; requests in its batch there; decisions of each size.
INDEXED_BLOCKS, RUNNING, DECISIONS = 100, 16, 200
DEPLOYMENT, SPEED, LOAD = "llama-70b@4xh100", 0.01, 2
SETTLE_S, WINDOW_S, PROBE_S = 1.0, 4.0, 0.05
FLEET_QUERY = "detail=&hz=4"
ROSTER_QUERY = "replicas=r0&detail=roster,blocks&others=status&hz=4"
Row = dict[str, float | None]


# --- the router and a report, in this process ---------------------------------------------------------------


def router(replicas: int) -> Row:
    fleet = LargeFleet(replicas, INDEXED_BLOCKS * replicas, RUNNING)
    taken: list[float] = []
    for number in range(DECISIONS):
        fleet.go_on(max(1, replicas // 100), replicas // 5)
        prompt = fleet.behind(fleet.common) if number % 2 else fleet.fresh_prompt()
        taken.append(fleet.decide_us(prompt) / 1_000)
    taken.sort()
    return {"router p50, ms": median(taken), "router p95, ms": taken[len(taken) * 95 // 100]}


def report(replicas: int) -> Row:
    fleet = ReportedFleet(replicas, RUNNING)
    return {f"step report of {RUNNING} tokens, us": fleet.report_us()}


# --- a server -----------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """A watch stream that is read and not looked at. ``bytes``, ``messages`` so far; those of the snapshot
    and how long it took apart."""

    def __init__(self, control_url: str, query: str) -> None:
        super().__init__(daemon=True)
        self._path, self._query = control_url.removeprefix("unix://"), query
        self.bytes = self.messages = self.snapshot_bytes = 0
        self.snapshot_s: float | None = None
        self._over = threading.Event()

    def run(self) -> None:
        began_s = time.perf_counter()
        tail = b""
        with socket.socket(socket.AF_UNIX) as plug:
            plug.connect(self._path)
            plug.settimeout(0.2)
            plug.sendall(f"GET /control/v1/watch?{self._query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while not self._over.is_set():
                try:
                    data = plug.recv(1 << 18)
                except TimeoutError:
                    continue
                if not data:
                    return
                seen = tail + data
                self.bytes += len(data)
                self.messages += seen.count(b"\nid:") - tail.count(b"\nid:")
                if self.snapshot_s is None and b'"snapshot-end"' in seen:
                    self.snapshot_s, self.snapshot_bytes = time.perf_counter() - began_s, self.bytes
                tail = seen[-64:]

    def stop(self) -> None:
        self._over.set()
        self.join(5.0)


class Probe(threading.Thread):
    """Asks the gateway over and over whether it lives: how long it takes tells how late its loop runs."""

    def __init__(self, base_url: str) -> None:
        super().__init__(daemon=True)
        self._url = base_url
        self.taken_s: list[float] = []
        self._over = threading.Event()

    def run(self) -> None:
        with httpx2.Client(base_url=self._url, trust_env=False, timeout=30.0) as client:
            while not self._over.wait(PROBE_S):
                began_s = time.perf_counter()
                client.get("/livez").raise_for_status()
                self.taken_s.append(time.perf_counter() - began_s)

    def percentile_ms(self) -> float | None:
        self._over.set()
        self.join(31.0)
        ordered = sorted(self.taken_s)
        return 1_000 * ordered[len(ordered) * 99 // 100] if ordered else None


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


def server(replicas: int) -> Row:
    with loaded(replicas) as fleet:
        return watching(fleet) | console(fleet) | documents(fleet)


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


# --- MQTT ---------------------------------------------------------------------------------------------------


def mqtt(replicas: int) -> Row:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return {}
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    heard = [0, 0]

    def count(_client: Any, _data: Any, message: Any) -> None:
        heard[0] += 1
        heard[1] += len(message.payload)

    port = free_port()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory, ExitStack() as stack:
        settings = {"simulate": DEPLOYMENT, "speed": 1.0, "mqtt": f"mqtt://127.0.0.1:{port}"}
        fleet = stack.enter_context(engine_server(Setup(), replicas=replicas, server=settings))
        pin([fleet.process.pid], 0)
        time.sleep(SETTLE_S)
        alone = share(fleet.process.pid)
        config = Path(directory) / "mosquitto.conf"
        user = "user root\n" if os.getuid() == 0 else ""
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n{user}")
        broker = subprocess.Popen(
            [program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(broker.wait, 10)
        stack.callback(broker.terminate)
        time.sleep(0.5)
        client = paho.Client(CallbackAPIVersion.VERSION2)
        client.on_message = count
        client.connect("127.0.0.1", port)
        client.subscribe("infer/#")
        client.loop_start()
        stack.callback(client.loop_stop)
        deadline_s = time.monotonic() + 40
        while heard[0] < 2 * (replicas + 1) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        before, began_s = list(heard), time.monotonic()
        used = share(fleet.process.pid)
        taken_s = time.monotonic() - began_s
        return {
            "MQTT, messages/s": (heard[0] - before[0]) / taken_s,
            "MQTT, bytes/s": (heard[1] - before[1]) / taken_s,
            "MQTT, server CPU, %": used - alone,
        }


def share(pid: int) -> float:
    """Per cent of a core that a process uses for a while."""
    used_s, began_s = cpu_seconds(pid), time.monotonic()
    time.sleep(WINDOW_S)
    return 100 * (cpu_seconds(pid) - used_s) / (time.monotonic() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--replicas", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--note", help="what is to be known of the machine, as that others used it meanwhile")
    parser.add_argument("--out", type=Path, help="the JSON file; default bench/results/scale-MACHINE.json")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/scale.md as it is")
    given = parser.parse_args()
    machine = describe()
    out: Path = given.out or ROOT / "bench/results" / f"scale-{file_name(machine)}"
    rows = read(out)
    parts: dict[str, Callable[[int], Row]] = {
        "router": router,
        "report": report,
        "server": server,
        "mqtt": mqtt,
    }
    for part in given.only:
        for replicas in given.replicas:
            print(f"{part}, {replicas} replicas", file=sys.stderr)
            rows.setdefault(str(replicas), {}).update(parts[part](replicas))
            write_json(out, machine, given.note, rows)
    print(table(rows))
    if not given.no_docs:
        write_docs(ROOT / "docs/scale.md", machine, given.note, rows)


if __name__ == "__main__":
    main()
