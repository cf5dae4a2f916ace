"""An MQTT broker that hangs for a minute costs nothing: not a token a second, and no memory.

``python tests/soak/broker.py [--seconds 60]``: a simulated fleet of its own under a steady load, and a real
mosquitto that hears of all of it. Two windows with the broker as it should be give the band in which
throughput is by itself; in a third the broker is stopped with SIGSTOP. Then it goes on, and hears again.
Prints one JSON document and a line; the exit status is 1 when something is not as wanted.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from infer_engine.telemetry.mqtt_mailbox import MOST_EVENTS
from soak.footprint import MIB, footprint, slope
from soak.load import Asked, Told, loading, told
from support.broker import Broker, Ear, broker, listening
from support.eventually import eventually
from support.server import EngineServer, serving

CLIENTS, SLOTS = 24, 16
DEPLOYMENT, SPEED = "llama-8b@1xh100", 0.2
RAMP_S, SLICE_S, SAMPLE_S, WITHIN_S = 10.0, 5.0, 1.0, 60.0
#: What two windows of the same may differ by where the machine is quiet.
LEAST_BAND = 0.02
#: Memory in the third window may grow by so much more a minute than in the two before it: a full mailbox.
WANTED_MIB_PER_MIN = 2.0
BACK_S = 60.0


@dataclass
class Report:
    seconds: float
    tokens_per_s: list[float]
    band: tuple[float, float]
    rss_mib_per_min: list[float]
    requests: int
    ends: dict[str, int]
    events_told: int = 0
    events_dropped: int = 0
    faults: list[str] = field(default_factory=list[str])


def run(seconds: float) -> Report:
    replica = {"max_running": SLOTS, "kv_blocks": 1024}
    with (
        tempfile.TemporaryDirectory(prefix="icq-") as directory,
        broker(Path(directory)) as running,
        listening(running.port, "infer/v1/soak/#") as ear,
        serving(
            name="soak",
            simulate=DEPLOYMENT,
            speed=SPEED,
            replicas=2,
            replica=replica,
            recorder_mib=1,
            mqtt=f"mqtt://127.0.0.1:{running.port}",
        ) as server,
    ):
        eventually(lambda: ear.last("infer/v1/soak/r1/telemetry"))
        heard, rss, ends_at = _windows(server, running, seconds)
        report = _told(seconds, heard, rss)
        report.faults += _back(ear, report, ends_at)
        if server.errors:
            report.faults.append(f"logged at ERROR: {server.errors[0]}")
        return report


def _windows(
    server: EngineServer, running: Broker, seconds: float
) -> tuple[Told, list[tuple[float, float]], float]:
    """What the load tells, memory in MiB by seconds since its beginning, and when the broker went on."""
    url = httpx2.URL(server.gateway_url)
    with server.gateway() as client:
        model = str(client.get("/v1/models").json()["data"][0]["id"])
    asked = Asked(
        host=url.host,
        port=url.port or 80,
        model=model,
        seconds=RAMP_S + 3 * seconds,
        clients=CLIENTS,
        answer_tokens=(4, 8, 16, 32),
    )
    rss: list[tuple[float, float]] = []
    with loading(asked) as process:
        began_s = time.monotonic()
        hung = False
        while (now_s := time.monotonic() - began_s) < asked.seconds:
            rss.append((now_s, footprint(server.pid).rss_bytes / MIB))
            if not hung and now_s >= RAMP_S + 2 * seconds:
                running.hang()
                hung = True
            time.sleep(SAMPLE_S)
        running.go_on()
        ends_at = time.time()
        return told(process, asked.patience_s + 30), rss, ends_at


def _told(seconds: float, heard: Told, rss: list[tuple[float, float]]) -> Report:
    starts = [RAMP_S + number * seconds for number in range(3)]
    rates = [heard.tokens_in_time(WITHIN_S, at, at + seconds) for at in starts]
    slices = [
        heard.tokens_in_time(WITHIN_S, at, at + SLICE_S)
        for start in starts[:2]
        for at in _steps(start, start + seconds)
    ]
    undisturbed = (rates[0] + rates[1]) / 2
    half = max(LEAST_BAND, abs(rates[0] - rates[1]) / undisturbed)
    band = (min(min(slices), undisturbed * (1 - half)), max(max(slices), undisturbed * (1 + half)))
    slopes = [60 * slope([each for each in rss if at <= each[0] < at + seconds]) for at in starts]
    report = Report(seconds, rates, band, slopes, len(heard.ended), dict(heard.count()))
    if rates[2] < undisturbed * (1 - half):
        report.faults.append("throughput is below the band while the broker hangs")
    if slopes[2] - max(slopes[:2]) >= WANTED_MIB_PER_MIN:
        report.faults.append("memory grows while the broker hangs")
    if bad := len(heard.ended) - heard.count()["whole"]:
        report.faults.append(f"{bad} requests were not served: {heard.statuses()}")
    return report


def _steps(start: float, end: float) -> Sequence[float]:
    return [start + number * SLICE_S for number in range(int((end - start) / SLICE_S))]


def _back(ear: Ear, report: Report, since_at: float) -> list[str]:
    """The broker hears again, and how many events it missed was counted."""

    def telemetry_again() -> bool:
        last = ear.last("infer/v1/soak/r1/telemetry") or {}
        return float(last.get("ts", 0)) > since_at + 1

    try:
        eventually(telemetry_again, BACK_S)
    except AssertionError:
        return [f"nothing comes from the broker {BACK_S:.0f} s after it went on"]
    events = [each for each in list(ear.heard) if "/event/" in each.topic]
    report.events_told = len(events)
    report.events_dropped = sum(int(each.payload.get("dropped") or 0) for each in events)
    if not report.events_dropped and len(events) > MOST_EVENTS:
        return ["more happened than is kept, but no event says that others were dropped"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    report = run(parser.parse_args().seconds)
    print(json.dumps(asdict(report)))
    first, second, hung = report.tokens_per_s
    verdict = "NOT AS WANTED" if report.faults else "as wanted"
    print(
        f"{verdict}: {first:.0f} and {second:.0f} tokens/s, {hung:.0f} while the broker hung; memory "
        f"{', '.join(f'{each:.2f}' for each in report.rss_mib_per_min)} MiB/min; "
        f"{report.events_dropped} events dropped and counted; {'; '.join(report.faults)}"
    )
    return int(bool(report.faults))


if __name__ == "__main__":
    raise SystemExit(main())
