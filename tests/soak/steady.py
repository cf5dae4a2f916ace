"""A server that works evenly for long holds as much at the end as after its first minutes.

``python tests/soak/steady.py [--minutes 20] [--warm-up 5]``, ``--minutes 480`` for a night: a real server
with two replicas of a tiny model under mixed load (streamed and whole answers, clients that leave, shared
beginnings, test traffic, a drain in every part), and a real console that looks closely at one of them. After
every few minutes the load rests, and what is open is counted: files and threads of every process, tasks of
the server's event loop, blocks in use. Prints one JSON document and a line; the exit status is 1 when
something grew.

The flight recorder holds 4 MiB here (``--recorder-mib``), so that it is full before the counting begins.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from infer_engine.benchmark.console_process import ConsoleProcess
from prometheus_client.parser import text_string_to_metric_families
from soak.footprint import Footprint, Growth, footprint
from soak.load import Asked, Told, loading, told
from support.server import EngineServer, serving

WANTED_MIB_PER_MIN = 1.0
SAMPLE_S = 5.0
RATE_PER_S = 8.0
#: The load rests as often as this.
PART_S = 300.0
#: How long what runs may take to end when the load has ended, and how long is looked at what stays open then.
SETTLE_S, REST_S = 60.0, 15.0
POLL_S = 0.5


@dataclass
class Rest:
    """What is held while nothing is asked for."""

    at_s: float
    fds: dict[str, int]
    threads: dict[str, int]
    tasks: int
    blocks: int

    def held(self) -> dict[str, int]:
        counts = {f"{name} fds": count for name, count in self.fds.items()}
        counts |= {f"{name} threads": count for name, count in self.threads.items()}
        return {**counts, "tasks": self.tasks, "blocks": self.blocks}


@dataclass
class Report:
    minutes: float
    requests: int = 0
    ends: dict[str, int] = field(default_factory=dict[str, int])
    moves: int = 0
    rss_mib_per_min: dict[str, float] = field(default_factory=dict[str, float])
    rss_mib: dict[str, float] = field(default_factory=dict[str, float])
    rests: list[Rest] = field(default_factory=list[Rest])
    faults: list[str] = field(default_factory=list[str])


class Scene:
    def __init__(self, server: EngineServer, console: ConsoleProcess, model: str) -> None:
        self.server = server
        self.model = model
        self.growth = Growth()
        self.began_s = time.monotonic()
        self.pids = {"server": server.pid, "console": console.pid}
        for replica in server.status().replicas:
            assert replica.pid is not None
            self.pids[replica.id] = replica.pid

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    async def sample(self) -> None:
        while True:
            self.growth.note(self.now_s, self.pids)
            await asyncio.sleep(SAMPLE_S)

    async def part(self, seconds: float, seed: int) -> Told:
        """The load for a while, with a drain in the midst of it."""
        url = httpx2.URL(self.server.gateway_url)
        asked = Asked(
            host=url.host,
            port=url.port or 80,
            model=self.model,
            seconds=seconds,
            rate_per_s=RATE_PER_S,
            answer_tokens=(1, 5, 20, 60, 150, 400),
            prompt_tokens=(4, 20, 60, 120),
            prefixes=8,
            plain_share=0.3,
            leaving_share=0.1,
            seed=seed,
        )
        with loading(asked) as process:
            waiting = asyncio.create_task(asyncio.to_thread(told, process, seconds + 120))
            await asyncio.sleep(seconds / 2)
            await asyncio.to_thread(self._operate, seconds / 4)
            return await waiting

    def _operate(self, seconds: float) -> None:
        """What an operator may do: test traffic, and a replica taken out and back."""
        with self.server.control() as control:
            traffic = {
                "profile": "chat",
                "rate_per_s": 1.0,
                "duration_s": max(1.0, seconds),
                "reason": "soak",
            }
            control.post("/control/v1/injections", json=traffic).raise_for_status()
            drain = {"mode": "migrate", "reason": "soak"}
            control.post("/control/v1/replicas/r0:drain", json=drain).raise_for_status()
            until_s = time.monotonic() + SETTLE_S
            while self.server.status().replicas[0].state != "drained" and time.monotonic() < until_s:
                time.sleep(POLL_S)
            control.post("/control/v1/replicas/r0:undrain", json={}).raise_for_status()

    async def rest(self) -> Rest:
        """What stays open while nothing runs: the least of each count within a while, for connections come
        and go with those who look."""
        until_s = time.monotonic() + SETTLE_S
        seen: list[Rest] = []
        while not seen or self.now_s - seen[0].at_s < REST_S:
            now, busy = await asyncio.to_thread(self._look)
            if not busy or time.monotonic() > until_s:
                seen.append(now)
            await asyncio.sleep(POLL_S)
        return Rest(
            at_s=self.now_s,
            fds={name: min(each.fds[name] for each in seen) for name in self.pids},
            threads={name: min(each.threads[name] for each in seen) for name in self.pids},
            tasks=min(each.tasks for each in seen),
            blocks=min(each.blocks for each in seen),
        )

    def _look(self) -> tuple[Rest, bool]:
        held: dict[str, Footprint] = {name: footprint(pid) for name, pid in self.pids.items()}
        status = self.server.status()
        busy = any(each.running or each.waiting or each.kv.used for each in status.replicas)
        with self.server.gateway() as client:
            tasks = _gauge(client.get("/metrics").text, "infer_event_loop_tasks")
        return (
            Rest(
                at_s=self.now_s,
                fds={name: each.fds for name, each in held.items()},
                threads={name: each.threads for name, each in held.items()},
                tasks=int(tasks),
                blocks=sum(each.kv.used or 0 for each in status.replicas),
            ),
            busy,
        )


def _gauge(page: str, name: str) -> float:
    families = text_string_to_metric_families(page)
    return next(sample.value for each in families if each.name == name for sample in each.samples)


async def run(minutes: float, warm_up_min: float, recorder_mib: int) -> Report:
    report = Report(minutes)
    replica: dict[str, Any] = {"kv_blocks": 512, "max_running": 16, "token_budget": 128}
    with serving(replicas=2, replica=replica, recorder_mib=recorder_mib) as server:
        with server.gateway() as client:
            model = str(client.get("/v1/models").json()["data"][0]["id"])
        console = ConsoleProcess(server.control_url)
        try:
            await console.look_closely()
            await _under_load(Scene(server, console, model), report, 60 * minutes, 60 * warm_up_min)
        finally:
            await console.stop()
        report.faults += [f"logged at ERROR: {line}" for line in server.errors[:3]]
    return report


async def _under_load(scene: Scene, report: Report, seconds: float, warm_up_s: float) -> None:
    sampling = asyncio.create_task(scene.sample())
    try:
        while scene.now_s < seconds:
            first = not report.rests
            part_s = warm_up_s if first else min(PART_S, seconds - warm_up_s)
            heard = await scene.part(part_s, seed=len(report.rests))
            report.requests += len(heard.ended)
            for end, count in heard.count().items():
                report.ends[end] = report.ends.get(end, 0) + count
            report.rests.append(await scene.rest())
            print(json.dumps(asdict(report.rests[-1])), file=sys.stderr, flush=True)
    finally:
        sampling.cancel()
    for name, sizes in scene.growth.rss_bytes.items():
        report.rss_mib_per_min[name] = round(scene.growth.mib_per_min(name, warm_up_s), 3)
        report.rss_mib[name] = round(sizes[-1] / 2**20, 1)
    with scene.server.control() as control:
        events = control.get("/control/v1/events", params={"limit": "10000"}).json()["events"]
    report.moves = sum(event["kind"] == "move" for event in events)
    report.faults += judged(report)


def judged(report: Report) -> list[str]:
    """What is not as wanted."""
    faults = [
        f"memory of {name} grows by {rate} MiB/min"
        for name, rate in report.rss_mib_per_min.items()
        if rate >= WANTED_MIB_PER_MIN
    ]
    first = report.rests[0].held()
    for later in report.rests[1:]:
        held = later.held()
        faults += [
            f"{what}: {first[what]} at first, {held[what]} after {later.at_s / 60:.0f} min"
            for what in first
            if held[what] != first[what]
        ]
    if report.rests[-1].blocks:
        faults.append(f"{report.rests[-1].blocks} blocks are held when nobody runs")
    if bad := sum(count for end, count in report.ends.items() if end in ("cut", "failed", "lost")):
        faults.append(f"{bad} requests neither served nor refused: {report.ends}")
    if not report.moves:
        faults.append("nothing was moved by the drains")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--recorder-mib", type=int, default=4)
    given = parser.parse_args()
    report = asyncio.run(run(given.minutes, given.warm_up, given.recorder_mib))
    print(json.dumps(asdict(report)))
    worst = max(report.rss_mib_per_min.values())
    verdict = "NOT AS WANTED" if report.faults else "as wanted"
    print(
        f"{verdict}: {report.minutes:g} min, {report.requests} requests, memory grows by at most "
        f"{worst:.2f} MiB/min; {'; '.join(report.faults) or 'nothing else grew'}"
    )
    return int(bool(report.faults))


if __name__ == "__main__":
    raise SystemExit(main())
