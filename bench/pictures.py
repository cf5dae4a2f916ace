"""The pictures of docs/images: an incident on a simulated fleet, operated on the real console in a real
pseudo-terminal, as an asciinema recording and as SVG.

``PYTHONPATH=tests python bench/pictures.py [--into docs/images] [--calm-s 20]``, in a checkout; takes about
two minutes, and ``rsvg-convert`` for the PNGs. Users are HTTP clients of three tenants; the incident is that
one of them sends many long prompts. The numbers are those of the run.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pyte
from infer_console.ui.themes import load_themes
from infer_engine.gateway.new_key import make_key
from support import cast
from support.screen_svg import screen_svg
from support.terminal import Terminal

HOME = Path("/tmp/infer-demo")
CONTROL = f"unix://{HOME}/eu-west.sock"
PROGRAM = [str(Path(sys.executable).with_name("infer-console"))]
SERVER = (
    "serve --simulate llama-70b@4xh100 --replicas 6 --kv-blocks 1800 --slo-ttft 2 --slo-itl 0.08 --seed 7 "
    f"--name eu-west --listen 127.0.0.1:18731 --control {CONTROL} --api-keys {HOME}/keys.toml"
)
GATEWAY = "http://127.0.0.1:18731"
#: Whoever operates is named in dialogs and in the audit.
PERSON = {
    "USER": "kim",
    "LOGNAME": "kim",
    "XDG_STATE_HOME": f"{HOME}/state",
    "XDG_CONFIG_HOME": f"{HOME}/config",
}
MODEL = "llama-3.1-70b"
LONGEST_S = 59.0
#: As ``t`` goes through them.
THEMES = list(load_themes())
WORDS = (
    "river",
    "stone",
    "early",
    "letter",
    "music",
    "north",
    "garden",
    "window",
    "paper",
    "answer",
    "seven",
)


class Users:
    """HTTP clients of one tenant, each with one request at a time, until ``stop``."""

    def __init__(
        self,
        key: str,
        many: int,
        words: tuple[int, int],
        tokens: tuple[int, int],
        *,
        stream: bool = True,
        begin: threading.Event | None = None,
    ) -> None:
        self._headers = {"authorization": f"Bearer {key}"}
        self._words, self._tokens, self._stream = words, tokens, stream
        self._begin = begin
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._one, args=(n,), daemon=True) for n in range(many)]
        for thread in self._threads:
            thread.start()

    def _one(self, number: int) -> None:
        draw = random.Random(f"{self._headers}{number}")
        with httpx2.Client(base_url=GATEWAY, headers=self._headers, timeout=120) as client:
            while self._begin is not None and not self._begin.wait(0.2):
                if self._stop.is_set():
                    return
            # Not all at once.
            self._stop.wait(number * 0.15)
            while not self._stop.is_set():
                self._ask(client, draw)
                self._stop.wait(draw.uniform(0.1, 1.5))

    def _ask(self, client: httpx2.Client, draw: random.Random) -> None:
        prompt = " ".join(draw.choices(WORDS, k=draw.randint(*self._words)))
        asked = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": draw.randint(*self._tokens),
            "stream": self._stream,
        }
        try:
            with client.stream("POST", "/v1/completions", json=asked) as answer:
                for _ in answer.iter_raw():
                    if self._stop.is_set():
                        return
        except httpx2.HTTPError as error:
            # A request that the fleet refuses is part of an incident.
            print(f"client: {error!r}", file=sys.stderr)

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def server() -> Generator[dict[str, str]]:
    """Raise RuntimeError when it does not become ready. Yields the API key of each tenant."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(mode=0o700)
    keys = {
        name: make_key(HOME / "keys.toml", f"{name}-app", tenant=name)
        for name in ("acme", "globex", "initech")
    }
    with (HOME / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*PROGRAM, *SERVER.split()], stdout=log, stderr=log, env=os.environ | PERSON
        )
        try:
            verb = [*PROGRAM, "--connect", CONTROL, "wait", "--ready", "--timeout", "60s"]
            deadline = time.monotonic() + 60
            while subprocess.run(verb, check=False, capture_output=True).returncode:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError((HOME / "server.log").read_text())
                time.sleep(0.5)
            yield keys
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def console(columns: int, rows: int, *options: str, **env: str) -> Generator[Terminal]:
    argv = [*PROGRAM, "--connect", CONTROL, "--no-bell", *options]
    with Terminal(argv, columns=columns, rows=rows, env=PERSON | env, answers=True) as terminal:
        yield terminal
        if terminal.process.poll() is None:
            terminal.send("q")
        terminal.wait_exit(30)


class Taking:
    """Moments of a console's output, by the name of the picture that is made of each afterwards."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.moments: dict[str, int] = {}

    def take(self, name: str) -> None:
        """Between two frames: when nothing came for a tenth of a second."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and time.monotonic() - self.terminal.came[-1][0] < 0.1:
            time.sleep(0.02)
        self.moments[name] = len(self.terminal.raw)

    def press(self, key: str, pattern: str, then_s: float, name: str = "") -> None:
        self.terminal.send(key)
        self.terminal.wait_for(pattern)
        time.sleep(then_s)
        if name:
            self.take(name)

    def confirm(self, key: str, dialog: str, then_s: float) -> None:
        """The key again applies what the dialog says; what came of it stays until some other key."""
        self.press(key, "any other key closes", then_s)
        self.terminal.send("esc")
        self.terminal.wait(f"{dialog} gone", lambda text: dialog not in text)
        time.sleep(1)

    def write(self, into: Path) -> None:
        for name, end in self.moments.items():
            screen = pyte.Screen(self.terminal.columns, self.terminal.rows)
            pyte.ByteStream(screen).feed(bytes(self.terminal.raw[:end]))
            title = f"infer-console: {TITLES[name]}"
            (into / f"{name}.svg").write_text(screen_svg(screen, title), encoding="utf-8")


#: What each picture shows, for those who cannot see it.
TITLES = {
    "fleet": "the Fleet screen while one tenant's long prompts fill the KV pools",
    "fleet-light": "the same Fleet screen in the light theme",
    "fleet-16": "the same Fleet screen in sixteen colours",
    "fleet-80x24": "the same Fleet screen in 80 by 24",
    "replica": "one replica: who runs, who waits and why, who owns which KV block",
    "requests": "every request of the fleet, and why it waits",
    "streams": "tokens as they are generated, text hidden",
    "doctor": "the doctor's findings with their evidence",
    "plan": "the plan of a tenant's limit, with what the server says it will do",
    "drain": "the plan of a drain",
    "events": "operations and events after the drain",
    "traffic": "test traffic, its guard rails and profiles",
}


def incident(taking: Taking, others: dict[str, Taking]) -> None:
    """From the alarm over its cause, a limit and a drain to a fleet that others have again."""
    time.sleep(3)
    taking.take("fleet")
    for name, other in others.items():
        other.take(name)
        other.terminal.send("q")
    taking.press("!", "alarm 1 of", 1.5)
    taking.press("enter", "ROSTER", 3, "replica")
    taking.press("3", "REQUESTS", 2.5, "requests")
    taking.press("4", "STREAMS", 2, "streams")
    taking.press("8", "FINDINGS", 1)
    # The gateway's lag stands first where the machine is busy.
    taking.press("j", "FINDINGS", 1.5, "doctor")
    taking.press("1", "TENANTS", 1)
    # Only while the doctor says so: others may have had their turns meanwhile.
    taking.press("T", "Limit tenant acme|no tenant", 2.5, "plan")
    if "Limit tenant" in taking.terminal.text():
        taking.confirm("T", "Limit tenant", 2.5)
    else:
        del taking.moments["plan"]
    taking.press("D", r"─ Drain r\d", 3, "drain")
    taking.confirm("D", "─ Drain r", 2)
    taking.terminal.wait_for("drained", 60)
    time.sleep(1)
    taking.press("5", "OPERATIONS", 2.5, "events")
    taking.press("1", "TENANTS", 2.5)


def pictures(into: Path, calm_s: float) -> None:
    flood = threading.Event()
    with server() as keys, console(120, 36, "--fps", "1") as main_one, ExitStack() as stack:
        users = [
            Users(keys["globex"], 8, (60, 700), (120, 320)),
            Users(keys["initech"], 5, (40, 300), (80, 200)),
            Users(keys["acme"], 3, (100, 400), (60, 160)),
            Users(keys["acme"], 44, (4000, 5500), (300, 500), stream=False, begin=flood),
        ]
        slow = ("--fps", "1")
        others = {
            "fleet-light": Taking(stack.enter_context(console(120, 36, *slow))),
            "fleet-16": Taking(stack.enter_context(console(120, 36, *slow, TERM="xterm", COLORTERM=""))),
            "fleet-80x24": Taking(stack.enter_context(console(80, 24, *slow))),
        }
        for _ in range(THEMES.index("light")):
            others["fleet-light"].press("t", "eu-west", 0.5)
        time.sleep(calm_s)
        flood.set()
        main_one.wait_for(r"TTFT[^\n]*▲", 60)
        with suppress(AssertionError):
            main_one.wait_for("acme holds|T: plan", 15)
        taking, begin = Taking(main_one), len(main_one.raw)
        try:
            # What the recording begins with is a whole screen.
            main_one.send("\x0c")
            incident(taking, others)
        finally:
            end = len(main_one.raw)
            for each in users:
                each.stop()
            # Also when it did not come to its end: they tell why.
            for each in (taking, *others.values()):
                each.write(into)
        taking.moments.clear()
        taking.press("6", "GUARD RAILS", 2, "traffic")
        taking.write(into)
    came = [(at, place) for at, place in main_one.came if begin < place <= end]
    pieces = cast.cut(bytes(main_one.raw[begin:end]), [(at, place - begin) for at, place in came], gap_s=0.2)
    # A busy machine draws late: then it is shown faster than it was.
    pace = min(1.0, LONGEST_S / pieces[-1].at_s)
    pieces = [cast.Piece(round(at_s * pace, 2), text) for at_s, text in pieces]
    made = cast.Cast(120, 36, "infer-console: an incident from alarm to drain", pieces)
    cast.write(into / "incident.cast", made)
    shown = "\n".join(cast.read(into / "incident.cast").played().display)
    assert "drained" in shown, shown
    assert "TENANTS" in shown, shown
    size_bytes = (into / "incident.cast").stat().st_size
    print(f"incident.cast: {made.length_s:.0f} s at {1 / pace:.2f} times the speed, {size_bytes:,} bytes")


def png(into: Path, name: str) -> None:
    command = [
        "rsvg-convert",
        "--width",
        "1400",
        "--output",
        str(into / f"{name}.png"),
        str(into / f"{name}.svg"),
    ]
    subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    parser.add_argument("--calm-s", type=float, default=20.0)
    given = parser.parse_args()
    pictures(given.into, given.calm_s)
    for name in ("fleet",):
        png(given.into, name)


if __name__ == "__main__":
    main()
