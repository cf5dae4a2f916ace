"""How fast a simulated fleet can go on this machine: asked and achieved speed, steps and tokens per second,
how late the server's event loop runs, memory.

``python bench/simfleet.py`` prints one JSON document. Each case starts its own engine server on one core,
injects test traffic until every replica has about as many sequences as asked for, attaches a console's
collector that looks at one replica's roster and block map at 4 Hz, and measures for ``--seconds``.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
from infer_console.collector import Collector
from infer_console.connect import parse_url

#: Mean output tokens of a ``long-answer`` request.
ANSWER_TOKENS = 640
MOST_RATE = 500.0
WARM_UP_S = 20.0


class Server:
    def __init__(self, directory: Path, settings: dict[str, Any], cores: set[int]) -> None:
        self.socket = directory / "c.sock"
        given = {"control": f"unix://{self.socket}", "listen": "127.0.0.1:0", **settings}
        command = [sys.executable, "-m", "infer_engine", "serve", "--settings", json.dumps(given)]
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command], stdout=subprocess.PIPE, stderr=log)
        os.sched_setaffinity(self.process.pid, cores)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(self.log.read_text())
        self.gateway = httpx2.Client(base_url=json.loads(line)["gateway"], timeout=30.0, trust_env=False)
        self.control = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(self.socket)), base_url="http://localhost", timeout=30.0
        )

    def state(self) -> dict[str, Any]:
        return self.control.get("/control/v1/state").json()

    def steps(self) -> float:
        page = self.gateway.get("/metrics").text
        return sum(float(value) for value in re.findall(r"^infer_steps_total\{.*\} (\S+)$", page, re.M))

    def tokens(self) -> float:
        page = self.gateway.get("/metrics").text
        return sum(
            float(value) for value in re.findall(r"^vllm:generation_tokens_total\{.*\} (\S+)$", page, re.M)
        )

    def inject(self, rate: float, seconds: float) -> None:
        body = {"profile": "long-answer", "rate_per_s": rate, "duration_s": seconds, "seed": 1}
        reply = self.control.post("/control/v1/injections", json=body)
        reply.raise_for_status()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        self.gateway.close()
        self.control.close()
        self.process.terminate()
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


def case(simulate: str, replicas: int, running: int, speed: float, seconds: float, console: bool) -> Any:
    """Warm up until the batch is about ``running``, then measure."""
    cores = {min(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory(prefix="simfleet-", dir="/tmp") as made:
        settings = {"simulate": simulate, "replicas": replicas, "speed": speed, "seed": 1}
        server = Server(Path(made), {**settings, "replica": {"max_running": running}}, cores)
        collector = Collector(parse_url(f"unix://{server.socket}")) if console else None
        try:
            while server.state()["totals"]["ready"] < replicas:
                time.sleep(0.1)
            # A request runs for ANSWER_TOKENS steps of about 12 ms; somewhat more keeps the batch full.
            rate = min(MOST_RATE, 1.2 * replicas * running / (ANSWER_TOKENS * 0.012))
            server.inject(rate, 600.0)
            if collector is not None:
                collector.start()
                collector.set_interest(["r0"], ("roster", "blocks"))
            began_s = time.monotonic()
            while time.monotonic() - began_s < WARM_UP_S:
                if (server.state()["totals"]["running"] or 0) >= 0.95 * replicas * running:
                    break
                time.sleep(0.5)
            return measure(server, seconds) | {
                "replicas": replicas,
                "speed_asked": speed,
                "console": console,
                "console_bytes_per_s": collector.picture.link.bytes_per_s if collector else None,
            }
        finally:
            if collector is not None:
                collector.stop()
            server.stop()


def measure(server: Server, seconds: float) -> dict[str, Any]:
    steps, tokens, cpu_s, began_s = server.steps(), server.tokens(), server.cpu_s(), time.monotonic()
    elapsed_s = server.state()["fleet"]["simulation"]["elapsed_s"]
    lags_s: list[float] = []
    while time.monotonic() - began_s < seconds:
        time.sleep(0.5)
        lags_s.append(server.state()["fleet"]["gateway"]["loop_lag_s"] or 0.0)
    state = server.state()
    real_s = time.monotonic() - began_s
    speed, cpu = (state["fleet"]["simulation"]["elapsed_s"] - elapsed_s) / real_s, server.cpu_s() - cpu_s
    return {
        "speed_achieved": speed,
        # What a core that has nothing else to do would reach: others may have run here, too.
        "speed_for_a_whole_core": speed / max(cpu / real_s, 1e-9),
        "speed_told": state["fleet"]["simulation"]["achieved_speed"],
        "running": state["totals"]["running"],
        "waiting": state["totals"]["waiting"],
        "steps_per_s": (server.steps() - steps) / real_s,
        "tokens_per_s": (server.tokens() - tokens) / real_s,
        "server_cpu": cpu / real_s,
        "loop_lag_s": {"median": sorted(lags_s)[len(lags_s) // 2], "worst": max(lags_s)},
        "rss_bytes": server.rss_bytes(),
        "itl_s": state["totals"]["itl_s"],
        "ttft_s": state["totals"]["ttft_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", default="llama-70b@4×h100")
    parser.add_argument(
        "--cases", nargs="+", default=["16x40", "64x10", "256x2"], help="replicas x sequences on each"
    )
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--no-console", action="store_true")
    given = parser.parse_args()
    results = [
        case(given.simulate, *map(int, each.split("x")), given.speed, given.seconds, not given.no_console)
        for each in given.cases
    ]
    machine = {
        "cores": os.cpu_count(),
        "cores_of_the_server": 1,
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    print(json.dumps({"simulate": given.simulate, "machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
