"""A console whose terminal hangs, and whose server is killed, hangs, or is cut off: nothing is lost that
could be kept, it says what is the matter, and goes on by itself.

``python tests/soak/console_cuts.py [--stall 30] [--cut 60] [--hang 30]``: a simulated fleet with traffic
behind a TCP port that can be cut (``support/black_hole.py``), and a real console in a real pseudo-terminal.
The server's flight recorder is off, so what an export has is what the console itself kept. Prints one JSON
document and a line; the exit status is 1 when something is not as wanted.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from infer_console.recording import RecordingError, open_recording
from infer_console.ui.benchmark.replay import Replay
from infer_engine.protocol import EventDelta
from soak.watched import Held, read
from support.black_hole import BlackHole
from support.eventually import eventually
from support.server import EngineServer, short_directory
from support.terminal import PYTHONPATH, TESTS, Terminal
from support.tiny_model import write_tiny_gguf

REPLICAS = 3
#: A present and a frame that was on its way already; a whole one of this size is 13,000 bytes or so.
MOST_FRAMES, ONE_FRAME = 2, 20_000
#: What the screen shows when a stall is over.
PRESENT = r"r1\s+drained"
#: SIGTERM to the end, while nothing is read.
EXIT_S = 2.0
WAIT_S = 60.0
#: After a cut that is shorter for certain the server still has all that was to be told (it keeps 256 KiB, for
#: 30 s); after a longer one a snapshot brings the newest events alone.
RESUMED_S = 5.0
TRAFFIC = {"profile": "chat", "rate_per_s": 0.5, "duration_s": 600.0, "reason": "soak"}


@dataclass
class Report:
    figures: dict[str, float] = field(default_factory=dict[str, float])
    faults: list[str] = field(default_factory=list[str])

    def expect(self, what: str, holds: object) -> None:
        if not holds:
            self.faults.append(what)


class Scene:
    """A server that can be started anew, the network to it, and the console."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._settings: dict[str, Any] = {
            "replicas": REPLICAS,
            "simulate": "llama-8b@1xl4",
            "speed": 5.0,
            "recorder_mib": 0,
            "replica": {
                "model": str(write_tiny_gguf(directory / "tiny.gguf")),
                "kv_blocks": 512,
                "threads": 1,
                "dtype": "auto",
            },
        }
        self.server = self.start()
        self.network = BlackHole(str(self.server.socket_path))
        self.told = directory / "told"
        self.report = Report()
        self._exports = 0
        self.terminal: Terminal

    def start(self) -> EngineServer:
        self.server = EngineServer(self.directory, self._settings)
        self.server.wait_listening()
        self.server.wait_ready()
        self.post("injections", TRAFFIC)
        return self.server

    def post(self, path: str, body: dict[str, Any]) -> None:
        with self.server.control() as control:
            answer = control.post(f"/control/v1/{path}", json=body)
        assert answer.status_code < 300, answer.text

    def drain(self, replica: str) -> None:
        """Until it is done: a row of events, and an alarm at the end."""
        self.post(f"replicas/{replica}:drain", {"mode": "migrate", "reason": "soak"})
        number = int(replica[1:])
        eventually(lambda: self.server.status().replicas[number].state == "drained", WAIT_S)

    def undrain(self, replica: str) -> None:
        self.post(f"replicas/{replica}:undrain", {})

    def events(self) -> dict[int, str]:
        """All that the server knows, by number."""
        with self.server.control() as control:
            told = control.get("/control/v1/events", params={"limit": "10000"}).json()["events"]
        return {event["seq"]: event["kind"] for event in told}

    @property
    def held(self) -> Held:
        return eventually(lambda: read(self.told), WAIT_S)[-1]

    def caught_up(self) -> bool:
        """The console knows the newest event that the server had when this was asked."""
        newest = max(self.events())
        return bool(eventually(lambda: self.held.last_event >= newest, WAIT_S))

    def exported(self, wanted: set[int]) -> set[int]:
        """Those of ``wanted`` events, by number, that are in a recording that the operator exports now."""
        self._exports += 1
        file = self.directory / f"e{self._exports}.icr"
        self.terminal.send(f":export -5m..now {file}", "enter")
        found: set[int] = set()
        until_s = time.monotonic() + WAIT_S / 2
        while not wanted <= found and time.monotonic() < until_s:
            time.sleep(0.1)
            if file.exists() and file.stat().st_size:
                found = _events_in(file)
        return wanted & found

    def live(self) -> None:
        self.terminal.wait_for(r"LIVE", WAIT_S)


def _events_in(file: Path) -> set[int]:
    """As far as it is written."""
    found: set[int] = set()
    with contextlib.suppress(RecordingError):
        handle, reader = open_recording(file)
        with handle:
            for envelope in reader.envelopes():
                if isinstance(envelope.delta, EventDelta):
                    found.add(envelope.delta.event.seq)
    return found


@contextmanager
def scene(silence_s: float | None = None) -> Generator[Scene]:
    """``silence_s``: how soon the console takes a silent link for stale, where not as usual."""
    with short_directory() as directory:
        made = Scene(directory)
        try:
            with made.network:
                argv = [
                    sys.executable,
                    str(TESTS / "soak" / "watched.py"),
                    str(made.told),
                    "--connect",
                    made.network.url,
                ]
                environment = {
                    "PYTHONPATH": PYTHONPATH,
                    "XDG_STATE_HOME": str(directory),
                    "XDG_CONFIG_HOME": str(directory),
                    "WATCHED_PERIOD_S": "0.2",
                    **({} if silence_s is None else {"WATCHED_SILENCE_S": str(silence_s)}),
                }
                with Terminal(
                    argv, columns=120, rows=36, env=environment, cwd=directory, answers=True
                ) as made.terminal:
                    made.terminal.wait_for(r"r2\s+ready", WAIT_S)
                    made.live()
                    yield made
        finally:
            if made.server.process.poll() is None:
                os.kill(made.server.pid, signal.SIGCONT)
            made.server.stop()


# --- what happens


def stall(at: Scene, seconds: float) -> None:
    """The terminal reads nothing for so long, while things happen."""
    terminal, report = at.terminal, at.report
    first = max(at.events())
    terminal.stalled.set()
    until_s = time.monotonic() + seconds
    before = len(terminal.raw)
    at.drain("r2")
    report.expect("the collector stood still", at.caught_up())
    report.expect("no alarm of the drained replica", eventually(lambda: "drained" in at.held.alarms))
    at.undrain("r2")
    eventually(lambda: "drained" not in at.held.alarms)
    at.drain("r1")
    report.expect("the collector stood still", at.caught_up())
    time.sleep(max(0.0, until_s - time.monotonic()))
    last = max(at.events())
    terminal.stalled.clear()
    terminal.wait_for(PRESENT, WAIT_S)
    resumed = bytes_until_present(terminal, before)
    report.figures |= {"stall_s": seconds, "resumed_bytes": resumed}
    report.expect(f"a backlog of {resumed} bytes was written", resumed < MOST_FRAMES * ONE_FRAME)
    at.caught_up()
    happened = {seq for seq in at.events() if first < seq <= last}
    lost = sorted(happened - at.exported(happened))
    report.figures |= {"stall_events": last - first, "stall_events_lost": len(lost)}
    report.expect(f"events are not in the recording: {lost[:9]}", not lost)
    at.undrain("r1")
    terminal.wait_for(r"r1\s+ready", WAIT_S)


def bytes_until_present(terminal: Terminal, before: int) -> int:
    """How much was written from there until the screen showed what is now."""
    raw, at = bytes(terminal.raw), before
    replay = Replay(terminal.columns, terminal.rows)
    replay.feed(raw[:before])
    for _, end in terminal.came:
        if end > before:
            replay.feed(raw[at:end])
            at = end
            if re.search(PRESENT, "\n".join(replay.lines())):
                break
    return at - before


def cut(at: Scene, seconds: float) -> None:
    """Nothing comes through for so long, while things happen."""
    first = max(at.events())
    at.network.cut()
    until_s = time.monotonic() + seconds
    _says_so(at)
    at.drain("r2")
    time.sleep(max(0.0, until_s - time.monotonic()))
    at.report.expect("the console ended", at.terminal.process.poll() is None)
    at.report.expect("shown as live", re.search(r"STALE|LOST", at.terminal.lines()[0]))
    at.network.heal()
    at.live()
    at.terminal.wait_for(r"r2\s+drained", WAIT_S)
    at.caught_up()
    last = at.held.last_event
    missing = at.held.missing_events
    resumed = time.monotonic() - until_s + seconds < RESUMED_S
    at.report.figures |= {"cut_s": seconds, "cut_events": last - first, "cut_events_lost": missing}
    at.report.expect(f"{missing} events of the cut are not known", not (missing and resumed))
    at.undrain("r2")
    at.terminal.wait_for(r"r2\s+ready", WAIT_S)


def hang(at: Scene, seconds: float) -> None:
    """The server is stopped (SIGSTOP) for so long."""
    os.kill(at.server.pid, signal.SIGSTOP)
    until_s = time.monotonic() + seconds
    _says_so(at)
    time.sleep(max(0.0, until_s - time.monotonic()))
    at.report.expect("the console ended", at.terminal.process.poll() is None)
    os.kill(at.server.pid, signal.SIGCONT)
    at.live()
    at.report.figures["hang_s"] = seconds


def kill(at: Scene) -> None:
    """The server is killed, and another started in its place."""
    at.server.process.kill()
    at.server.stop()
    at.terminal.wait_for("LOST", WAIT_S)
    _refuses(at)
    at.start()
    at.live()
    at.terminal.wait_for(r"r2\s+ready", WAIT_S)
    at.caught_up()
    at.report.figures["kills"] = at.report.figures.get("kills", 0) + 1


def _says_so(at: Scene) -> None:
    at.terminal.wait_for("STALE|LOST", WAIT_S)  # a machine that is busy may not show the first
    at.terminal.wait_for("LOST", WAIT_S)
    _refuses(at)


def _refuses(at: Scene) -> None:
    """What would change something opens no dialog."""
    at.terminal.wait_for("no connection", WAIT_S)

    def refused() -> bool:
        """A notice stands for a few seconds only."""
        at.terminal.send("S")
        with contextlib.suppress(AssertionError):
            return bool(at.terminal.wait_for("there is no connection to the server", 3.0))
        return False

    eventually(refused, WAIT_S)


def end_while_stalled(at: Scene) -> None:
    at.terminal.stalled.set()
    at.terminal.send("ctrl+l", "2", "1")
    at.caught_up()
    told_s = time.monotonic()
    os.kill(at.terminal.pid, signal.SIGTERM)
    status = at.terminal.wait_exit(WAIT_S)
    at.report.figures["exit_s"] = round(time.monotonic() - told_s, 2)
    at.report.expect(f"it ended with {status}", status == 128 + signal.SIGTERM)


def run(stall_s: float, cut_s: float, hang_s: float) -> Report:
    with tempfile.TemporaryDirectory(), scene() as at:
        stall(at, stall_s)
        cut(at, cut_s)
        hang(at, hang_s)
        kill(at)
        end_while_stalled(at)
        at.report.expect("it took long to end", at.report.figures["exit_s"] <= EXIT_S)
        at.report.faults += [f"logged at ERROR: {line}" for line in at.server.errors[:3]]
        return at.report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stall", type=float, default=30.0)
    parser.add_argument("--cut", type=float, default=60.0)
    parser.add_argument("--hang", type=float, default=30.0)
    given = parser.parse_args()
    report = run(given.stall, given.cut, given.hang)
    print(json.dumps(asdict(report)))
    verdict = "NOT AS WANTED" if report.faults else "as wanted"
    figures = report.figures
    print(
        f"{verdict}: terminal stalled {given.stall:g} s, {figures['stall_events']:g} events, "
        f"{figures['stall_events_lost']:g} lost, {figures['resumed_bytes']:g} bytes at once; cut off "
        f"{given.cut:g} s, {figures['cut_events']:g} events, {figures['cut_events_lost']:g} lost; hung and "
        f"killed, live again; SIGTERM to the end {figures['exit_s']:g} s; "
        f"{'; '.join(report.faults) or 'nothing else'}"
    )
    return int(bool(report.faults))


if __name__ == "__main__":
    raise SystemExit(main())
