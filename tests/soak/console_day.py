"""A console that looks on for a day holds as much in the evening as in the morning.

``python tests/soak/console_day.py [--minutes 14.4] [--speed 100] [--warm-up 5]``:
``infer-console serve --simulate`` at 100 simulated seconds a second, so that 14.4 minutes are 24 hours, and a
real console in a real pseudo-terminal that is attached all the time. The load follows the day; every quarter
of a simulated hour an operator does something (drains, fences, restarts, scales, other headroom), and now and
then the pool is too small for what comes, so alarms come and go. The one at the console goes through the
screens, into the past and back, marks, exports, changes the theme, the lens and the size of the window.

Told every few seconds by the console itself (``watched.py``): memory, files, threads, event-loop tasks,
objects, what the past takes (its own tape and pieces of the server's recorder, 24 and 3 MiB at most).
Wanted: less than 150 MiB; less than 1 MiB/min after the warm-up, the past counted; and no more files,
threads or tasks in the median of any later part of the day than in that of the first after the warm-up.
Prints one JSON document and a line; the exit status is 1 when something is not as wanted.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median_low
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.footprint import MIB, Growth, slope
from soak.watched import Held, read
from support.server import EngineServer, serving
from support.terminal import PYTHONPATH, TESTS, Terminal

WANTED_MIB, WANTED_MIB_PER_MIN = 150.0, 1.0
DEPLOYMENT, REPLICAS = "llama-8b@1xl4", 3
#: Small, so that a crowd does not fit.
KV_BLOCKS, MAX_RUNNING = 192, 32
HOUR_S, DAY_S = 3_600.0, 86_400.0
#: Simulated seconds between two doings of the operator; test traffic lasts no longer than ten minutes.
TURN_S, TRAFFIC_S = 900.0, 600.0
#: Real seconds between two keys.
KEYS_S = 3.0
#: Arrivals a simulated second at noon, and in a crowd.
NOON_PER_S, CROWD_PER_S = 0.15, 0.6
#: The day after the warm-up is judged in so many parts.
PARTS = 4
START_S = 60.0
#: One piece each, in turn: through all screens, into the past and back, and what else there is to press.
KEYS: tuple[tuple[str, ...], ...] = (
    ("1", "j", "s"),
    ("2", "v", "tab", "space"),
    ("3", "j", "enter"),
    ("esc", "v", "space", "4"),
    ("5", "f", "esc"),
    ("[", "[", "{"),
    ("2", "end"),
    ("6",),
    ("7", "f"),
    ("8", "tab"),
    ("m", "!"),
    ("p",),
    ("1", "p"),
    ("{", "{", "]", "5"),
    ("3", "end"),
    (":export -2m..now", "enter"),
    ("?",),
    ("esc", "t", "ctrl+l"),
    ("D",),
    ("esc", "1"),
)
SIZES = ((120, 36), (200, 50), (80, 24))


@dataclass
class Report:
    """``growth`` is of the console: what each part of the day held, in the median."""

    simulated_h: float = 0.0
    real_min: float = 0.0
    rss_mib: float = 0.0
    most_rss_mib: float = 0.0
    #: Of all of it, and without what the past takes.
    all_mib_per_min: float = 0.0
    mib_per_min: float = 0.0
    past_mib: float = 0.0
    server_mib_per_min: float = 0.0
    parts: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    commands: dict[str, int] = field(default_factory=dict[str, int])
    alarms: list[str] = field(default_factory=list[str])
    alarm_changes: int = 0
    keys: int = 0
    screens_bytes: int = 0
    exports: int = 0
    faults: list[str] = field(default_factory=list[str])


class Operator:
    """What is asked of the fleet, by the hour."""

    def __init__(self, server: EngineServer, report: Report, seed: int) -> None:
        self._server = server
        self._report = report
        self._dice = Random(seed)
        self._turn = 0

    def turn(self, elapsed_s: float) -> None:
        """Once every :data:`TURN_S`."""
        self._turn += 1
        hour = elapsed_s % DAY_S / HOUR_S
        crowd = self._turn % 9 == 0
        day = math.sin(math.pi * hour / 24) ** 2
        if crowd:
            asked: dict[str, Any] = {"profile": "long-answer", "rate_per_s": CROWD_PER_S}
        else:
            profile = self._dice.choice(("chat", "mixed", "shared-prefix", "batch-backfill", "long-context"))
            asked = {"profile": profile, "rate_per_s": max(0.01, NOON_PER_S * day)}
        self._post("injections", {**asked, "duration_s": TRAFFIC_S, "seed": self._turn})
        self._operate()

    def _operate(self) -> None:
        replica = f"replicas/r{self._turn // 10 % 2}"
        match self._turn % 10:
            case 1:
                self._post(f"{replica}:drain", {"mode": "migrate", "deadline_s": 120})
            case 2:
                self._post(f"{replica}:undrain", {})
            case 3:
                self._post("headroom", {"percent": 40, "revert_after_s": 1_200})
            case 4:
                self._post(f"{replica}:fence", {})
            case 5:
                self._post(f"{replica}:release", {})
            case 6:
                self._post("scale", {"replicas": REPLICAS + 1})
            case 7:
                self._post("scale", {"replicas": REPLICAS, "deadline_s": 60})
            case 8:
                self._post(f"{replica}:restart", {"deadline_s": 30})
            case 9:
                self._post("shed", {"on": self._turn % 20 == 9})
            case _:
                pass

    def _post(self, path: str, body: dict[str, Any]) -> None:
        with self._server.control() as control:
            answer = control.post(f"/control/v1/{path}", json={"reason": "soak", **body})
        name = path.rpartition(":")[2] if ":" in path else path
        told = name if answer.status_code < 300 else f"{name} refused: {answer.json().get('code')}"
        self._report.commands[told] = self._report.commands.get(told, 0) + 1


class Scene:
    def __init__(self, server: EngineServer, terminal: Terminal, told: Path, report: Report) -> None:
        self._server = server
        self._terminal = terminal
        self._told = told
        self._report = report
        self._operator = Operator(server, report, seed=7)
        self._growth = Growth()
        self._began_s = time.monotonic()

    def run(self, simulated_s: float) -> None:
        """Until the fleet's clock shows that much more."""
        first_s = self._elapsed_s()
        next_turn_s, next_keys_s, pressed = 0.0, 0.0, 0
        while (passed_s := self._elapsed_s() - first_s) < simulated_s:
            now_s = time.monotonic() - self._began_s
            self._growth.note(now_s, {"server": self._server.pid})
            if passed_s >= next_turn_s:
                next_turn_s = passed_s + TURN_S
                self._operator.turn(passed_s)
            if now_s >= next_keys_s:
                next_keys_s = now_s + KEYS_S
                self._press(pressed)
                pressed += 1
            if self._terminal.process.poll() is not None:
                self._report.faults.append(f"the console ended:\n{self._terminal.text()}")
                break
            time.sleep(1.0)
        self._report.simulated_h = round(passed_s / HOUR_S, 2)
        self._report.real_min = round((time.monotonic() - self._began_s) / 60, 2)

    def _press(self, number: int) -> None:
        """A key at a time, as fingers do."""
        for key in KEYS[number % len(KEYS)]:
            self._terminal.send({"ctrl+l": "\x0c"}.get(key, key))
            self._report.keys += 1
            time.sleep(0.1)
        if number % len(KEYS) == len(KEYS) - 1:
            self._terminal.resize(*SIZES[number // len(KEYS) % len(SIZES)])

    def _elapsed_s(self) -> float:
        simulation = self._server.status().fleet.simulation
        assert simulation is not None
        return simulation.elapsed_s

    def judge(self, warm_up_s: float) -> None:
        report, held = self._report, read(self._told)
        report.screens_bytes = len(self._terminal.raw)
        report.exports = len(list(self._told.parent.glob("*.icr")))
        report.server_mib_per_min = round(self._growth.mib_per_min("server", warm_up_s), 3)
        tell(report, held, warm_up_s)
        report.faults += judged(report, held, warm_up_s)
        report.faults += [f"logged at ERROR: {line}" for line in self._server.errors[:3]]


def tell(report: Report, held: Sequence[Held], warm_up_s: float) -> None:
    """What was held, in numbers."""
    later = [each for each in held if each.at_s >= warm_up_s]
    if not later:
        return
    report.rss_mib = round(later[-1].rss_bytes / MIB, 1)
    report.most_rss_mib = round(max(each.rss_bytes for each in held) / MIB, 1)
    report.all_mib_per_min = round(60 * slope([(each.at_s, each.rss_bytes) for each in later]) / MIB, 3)
    without = [(each.at_s, each.rss_bytes - each.past_bytes) for each in later]
    report.mib_per_min = round(60 * slope(without) / MIB, 3)
    report.past_mib = round(later[-1].past_bytes / MIB, 1)
    report.alarms = sorted({rule for each in held for rule in each.alarms})
    report.alarm_changes = sum(a.alarms != b.alarms for a, b in pairwise(held))
    size = max(1, len(later) // PARTS)
    for part in (later[at : at + size] for at in range(0, size * PARTS, size)):
        if part:
            report.parts.append(
                {
                    name: median_low(getattr(each, name) for each in part)
                    for name in ("fds", "threads", "tasks", "objects")
                }
            )


def judged(report: Report, held: Sequence[Held], warm_up_s: float) -> list[str]:
    """What is not as wanted."""
    if not report.parts:
        return [f"the console told nothing after {warm_up_s:g} s"]
    faults: list[str] = []
    if report.most_rss_mib >= WANTED_MIB:
        faults.append(f"the console held {report.most_rss_mib} MiB")
    if report.all_mib_per_min >= WANTED_MIB_PER_MIN:
        faults.append(f"memory grows by {report.all_mib_per_min} MiB/min")
    first = report.parts[0]
    for number, part in enumerate(report.parts[1:], 2):
        faults += [
            f"{what}: {first[what]} in part 1, {part[what]} in part {number}"
            for what in ("fds", "threads", "tasks")
            if part[what] > first[what]
        ]
    if not report.alarms or not report.alarm_changes:
        faults.append("no alarm came and went")
    if not report.exports:
        faults.append("nothing was exported")
    if held[-1].link != "live":
        faults.append(f"the console is not live at the end: {held[-1].link}")
    return faults


def run(minutes: float, speed: float, warm_up_min: float) -> Report:
    report = Report()
    replica: dict[str, Any] = {"kv_blocks": KV_BLOCKS, "max_running": MAX_RUNNING}
    with (
        tempfile.TemporaryDirectory() as place,
        serving(
            simulate=DEPLOYMENT,
            replicas=REPLICAS,
            speed=speed,
            replica=replica,
            recorder_mib=4,
            max_replicas=REPLICAS + 1,
        ) as server,
    ):
        told = Path(place) / "told"
        argv = [
            sys.executable,
            str(TESTS / "soak" / "watched.py"),
            str(told),
            "--connect",
            server.control_url,
        ]
        environment = {
            "PYTHONPATH": PYTHONPATH,
            "XDG_STATE_HOME": place,
            "XDG_CONFIG_HOME": place,
        }
        with Terminal(argv, columns=120, rows=36, env=environment, cwd=Path(place), answers=True) as terminal:
            terminal.wait_for(r"r0\s+ready", START_S)
            scene = Scene(server, terminal, told, report)
            scene.run(60 * minutes * speed)
            scene.judge(60 * warm_up_min)
            if terminal.process.poll() is None:
                terminal.send("esc", "esc", "q")
                terminal.wait_exit()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=14.4)
    parser.add_argument("--speed", type=float, default=100.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    given = parser.parse_args()
    report = run(given.minutes, given.speed, given.warm_up)
    print(json.dumps(asdict(report)))
    verdict = "NOT AS WANTED" if report.faults else "as wanted"
    print(
        f"{verdict}: {report.simulated_h:g} simulated hours in {report.real_min:g} min; the console held "
        f"{report.most_rss_mib:g} MiB at most and grew by {report.all_mib_per_min:.2f} MiB/min, "
        f"without its past by {report.mib_per_min:.2f}; "
        f"{'; '.join(report.faults) or 'nothing else grew'}"
    )
    return int(bool(report.faults))


if __name__ == "__main__":
    raise SystemExit(main())
