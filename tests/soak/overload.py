"""Ten times more requests than can be served, for a minute: what is served in time stays as much as at the
peak, the others are told when to come back, operators are still answered, and afterwards all is as it was.

``python tests/soak/overload.py [--seconds 60] [--times 10]`` has a server of its own whose replica is
simulated, so that the load, a process of its own on the same machine, can be ten times what it serves. First
the peak: as many clients as keep somebody waiting. Then the overload, an open loop. Prints one JSON document
and a line; the exit status is 1 when something is not as wanted. ``--deadline S`` gives every request that
deadline and the queue its default length, which alone bounds nothing then.
"""

import argparse
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from infer_engine.benchmark.processes import cpu_seconds
from prometheus_client.parser import text_string_to_metric_families
from soak.load import Asked, Told, loading, told
from support.server import EngineServer, serving

SLOTS, WAITING = 16, 32
#: Of different lengths, so that the batch does not end all at once. In all, 32 tokens on average.
ANSWERS = (16, 24, 32, 40, 48)
TOKENS = sum(ANSWERS) // len(ANSWERS)
#: A step takes about 40 ms, so that a client's machine is not what is overloaded.
DEPLOYMENT, SPEED = "llama-8b@1xh100", 0.12
CONTROL_PERIOD_S = 0.05
#: What an operator asks for while the fleet drowns.
CONTROL_PATHS = (
    "/control/v1/state",
    "/control/v1/requests?limit=100",
    "/control/v1/events?limit=100",
    "/control/v1/operations",
)
WANTED_GOODPUT, WANTED_CONTROL_S, WANTED_RECOVERY_S = 0.9, 0.25, 10.0
#: A request is in time when it takes no longer than so many times what one of a full batch takes: so long its
#: wait in a full queue may be.
IN_TIME = 5.0
RAMP_S = 5.0


@dataclass
class Report:
    peak_tokens_per_s: float
    goodput_tokens_per_s: float
    offered_times: float
    in_time_s: float
    sent: int
    ends: dict[str, int]
    not_served: dict[str, int]
    control_p99_ms: float
    control_worst_ms_by_path: dict[str, float]
    server_cpu_percent: float
    control_asked: int
    recovery_s: float
    load_behind_s: float
    faults: list[str] = field(default_factory=list)


class ControlProbe(threading.Thread):
    """Asks the control API for one thing after another, from its start until ``stop``."""

    def __init__(self, server: EngineServer) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._stop_asked = threading.Event()
        self.took_s: list[float] = []
        self.worst_s: dict[str, float] = {}
        self.failed: list[str] = []

    def run(self) -> None:
        with self._server.control() as client:
            while not self._stop_asked.wait(CONTROL_PERIOD_S):
                path = CONTROL_PATHS[len(self.took_s) % len(CONTROL_PATHS)]
                began_s = time.monotonic()
                try:
                    status = client.get(path).status_code
                except httpx2.HTTPError as error:
                    status = repr(error)
                self.took_s.append(took_s := time.monotonic() - began_s)
                self.worst_s[path] = max(took_s, self.worst_s.get(path, 0.0))
                if status != 200:
                    self.failed.append(f"{path}: {status}")

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(30.0)

    def p99_s(self) -> float:
        return sorted(self.took_s)[int(0.99 * (len(self.took_s) - 1))]


@dataclass(frozen=True)
class Overload:
    server: EngineServer
    model: str
    headers: dict[str, str]

    def load(self, seconds: float, **how: Any) -> Told:
        url = httpx2.URL(self.server.gateway_url)
        asked = Asked(
            host=url.host,
            port=url.port or 80,
            model=self.model,
            seconds=seconds,
            answer_tokens=ANSWERS,
            headers=self.headers,
            **how,
        )
        with loading(asked) as process:
            return told(process, seconds + asked.patience_s + 30)

    def counted(self) -> dict[str, float]:
        """The server's own counts: how requests ended or were refused."""
        with self.server.gateway() as client:
            page = client.get("/metrics").text
        counts: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name in ("infer_requests_finished_total", "infer_requests_rejected_total"):
                    key = "rejected" if "rejected" in sample.name else sample.labels["reason"]
                    counts[key] = counts.get(key, 0) + sample.value
        return counts

    def recovery_s(self, alone_s: float) -> float:
        """Until nobody waits and a request alone takes about as long as before."""
        began_s = time.monotonic()
        with self.server.gateway() as client:
            while time.monotonic() - began_s < 60:
                took_s = _one(client, self.model)
                totals = self.server.status().totals
                if took_s is not None and took_s < 1.5 * alone_s + 0.1 and not totals.waiting:
                    return time.monotonic() - began_s
        return float("inf")


def _one(client: httpx2.Client, model: str) -> float | None:
    """How long a request takes; None when it is refused."""
    began_s = time.monotonic()
    body = {"model": model, "prompt": [50] * 20, "max_tokens": TOKENS, "ignore_eos": True}
    response = client.post("/v1/completions", json=body)
    return time.monotonic() - began_s if response.status_code == 200 else None


def run(seconds: float, times: float, peak_s: float, deadline_s: float | None) -> Report:
    replica: dict[str, Any] = {"max_running": SLOTS, "kv_blocks": 1024}
    headers: dict[str, str] = {}
    if deadline_s is None:
        replica["max_waiting"] = WAITING
    else:
        # Durations that a simulated fleet is told are simulated ones.
        headers["x-infer-deadline-s"] = f"{deadline_s * SPEED:g}"
    with serving(simulate=DEPLOYMENT, speed=SPEED, replica=replica) as server:
        with server.gateway() as client:
            model = str(client.get("/v1/models").json()["data"][0]["id"])
            alone_s = sorted(_one(client, model) or 0.0 for _ in range(3))[1]
        scene = Overload(server, model, headers)
        # A full batch and somebody waiting, always.
        peak = scene.load(RAMP_S + peak_s, clients=SLOTS + 4)
        batch_s = sorted(e.ended_s - (e.first_s or 0.0) for e in peak.ended)[len(peak.ended) // 2]
        in_time_s = deadline_s or IN_TIME * batch_s
        peak_rate = peak.tokens_in_time(in_time_s, RAMP_S, RAMP_S + peak_s)
        before = scene.counted()
        probe = ControlProbe(server)
        probe.start()
        began_s, cpu_s = time.monotonic(), cpu_seconds(server.pid)
        heard = scene.load(seconds, rate_per_s=times * peak_rate / TOKENS)
        cpu_percent = 100 * (cpu_seconds(server.pid) - cpu_s) / (time.monotonic() - began_s)
        probe.stop()
        recovery_s = scene.recovery_s(alone_s)
        after = scene.counted()
        report = Report(
            peak_tokens_per_s=peak_rate,
            goodput_tokens_per_s=heard.tokens_in_time(in_time_s, RAMP_S, seconds),
            offered_times=len(heard.ended) / seconds * TOKENS / peak_rate,
            in_time_s=in_time_s,
            sent=len(heard.ended),
            ends=dict(heard.count()),
            not_served=heard.statuses(),
            control_p99_ms=1e3 * probe.p99_s(),
            control_worst_ms_by_path={path: 1e3 * took_s for path, took_s in probe.worst_s.items()},
            server_cpu_percent=cpu_percent,
            control_asked=len(probe.took_s),
            recovery_s=recovery_s,
            load_behind_s=heard.behind_s,
        )
        report.faults += _timed(report) + _counted(heard, probe, before, after, server)
    return report


def _timed(report: Report) -> list[str]:
    faults: list[str] = []
    if report.goodput_tokens_per_s < WANTED_GOODPUT * report.peak_tokens_per_s:
        faults.append("goodput is less than 90 % of the peak")
    if report.control_p99_ms >= 1e3 * WANTED_CONTROL_S:
        faults.append("the control API's p99 is 250 ms or more")
    if report.recovery_s >= WANTED_RECOVERY_S:
        faults.append("not recovered within 10 s")
    return faults


def _counted(
    heard: Told, probe: ControlProbe, before: dict[str, float], after: dict[str, float], server: EngineServer
) -> list[str]:
    """What has to hold however fast the machine is."""
    faults: list[str] = []
    ends = heard.count()
    refused = [each for each in heard.ended if each.end == "refused"]
    if not refused:
        faults.append("nobody was refused")
    if silent := sum(not each.retry_after for each in refused):
        faults.append(f"{silent} were refused without Retry-After")
    if bad := ends["failed"] + ends["lost"] + ends["left"]:
        faults.append(f"{bad} neither served nor refused: {heard.statuses()}")
    # The probes behind the load are whole as well, and all of them counted.
    served = after.get("length", 0) - before.get("length", 0)
    if served < ends["whole"] or served > ends["whole"] + ends["cut"] + 200:
        faults.append(f"the server counts {served:.0f} served, the clients {ends['whole']}")
    rejected = after.get("rejected", 0) - before.get("rejected", 0)
    if rejected < len(refused):
        faults.append(f"the server counts {rejected:.0f} refused, the clients {len(refused)}")
    if probe.failed:
        faults.append(f"the control API failed {len(probe.failed)} times: {probe.failed[0]}")
    status = server.status()
    if held := sum(each.kv.used or 0 for each in status.replicas):
        faults.append(f"{held} blocks are held when nobody runs")
    if broken := sum(each.invariant_violations or 0 for each in status.replicas):
        faults.append(f"{broken} invariant violations")
    if server.errors:
        faults.append(f"logged at ERROR: {server.errors[0]}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--peak-seconds", type=float, default=12.0)
    parser.add_argument("--deadline", type=float, default=None)
    given = parser.parse_args()
    report = run(given.seconds, given.times, given.peak_seconds, given.deadline)
    print(json.dumps(asdict(report)))
    share = report.goodput_tokens_per_s / report.peak_tokens_per_s
    verdict = "NOT AS WANTED" if report.faults else "as wanted"
    print(
        f"{verdict}: {report.offered_times:.1f} times the peak offered, goodput {share:.0%} of it, "
        f"control p99 {report.control_p99_ms:.0f} ms, recovered in {report.recovery_s:.1f} s; {report.ends}"
    )
    return int(bool(report.faults))


if __name__ == "__main__":
    raise SystemExit(main())
