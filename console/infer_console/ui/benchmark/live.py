"""What the real console costs its terminal and its machine: bytes, CPU, answers to keys, first frame.

The console runs in a pseudo-terminal that answers its questions, attached to a simulated fleet: *idle*, or
*busy* with 64 requests running and 40 waiting on each of two replicas at some 30 steps a second. Bytes are
exact; times and CPU are this machine's, so the fleet gets another core than the console where there are two.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from infer_engine.settings import DEFAULT_MODEL

from infer_console.embedded import EmbeddedError, fetch_model
from infer_console.ui.benchmark.fleet import SimulatedFleet, busy, pin, simulated_fleet
from infer_console.ui.benchmark.replay import Replay
from infer_console.ui.benchmark.terminal import ConsoleInTerminal, TerminalError
from infer_console.view.look import FLEET_SORTS

SECONDS, SETTLE_S = 10.0, 3.0
KEYS = 40
KEY_PERIOD_S, KEY_LIMIT_S = 0.31, 3.0
START_LIMIT_S = 20.0
LARGE_FLEET, LARGE_POOL = 1_000, 31_250
#: What the measures are wanted to be at most.
WANTED = {
    "busy B/s": 8_000.0,
    "idle B/s": 500.0,
    "busy CPU": 10.0,
    "large CPU": 15.0,
    "key": 50.0,
    "switch": 150.0,
    "first": 1.0,
    "exit": 2.0,
}
Result = dict[str, Any]


def measure() -> list[Result]:
    """Some three minutes. Raise TerminalError where the console or the fleet did not do what is measured."""
    made = embedded_first_frame()
    with simulated_fleet() as fleet:
        made += _first_frame(fleet)
        made += [_bytes(fleet, "Fleet", "", "idle"), _bytes(fleet, "Replica", "2", "idle")]
        with busy(fleet):
            made += [_bytes(fleet, "Fleet", "", "busy"), _bytes(fleet, "Replica", "2", "busy")]
            made += [
                _cpu(fleet, "Fleet, busy", "", "busy CPU"),
                _cpu(fleet, "Replica, busy", "2", "busy CPU"),
            ]
            made += _keys(fleet)
            made.append(_stalled_exit(fleet))
    with simulated_fleet(kv_blocks=LARGE_POOL) as fleet, busy(fleet):
        made.append(_cpu(fleet, f"Replica, {LARGE_POOL:,} blocks", "2", "large CPU"))
    with simulated_fleet(LARGE_FLEET) as fleet, busy(fleet, 2):
        made.append(_cpu(fleet, f"Fleet, {LARGE_FLEET:,} replicas", "", "large CPU"))
    return made


def _attached(fleet: SimulatedFleet, *options: str) -> ConsoleInTerminal:
    console = ConsoleInTerminal(["--connect", fleet.control_url, *options])
    pin([console.process.pid], 1)
    return console


def _settle(console: ConsoleInTerminal, keys: str) -> None:
    """On the screen that ``keys`` lead to, its first picture shown."""
    _wait(console, lambda lines: any("RUN" in line for line in lines))
    for key in keys:
        console.send(key)
        time.sleep(0.5)
    time.sleep(SETTLE_S)
    pin([console.process.pid], 1)  # threads that came since


def _wait(console: ConsoleInTerminal, seen: Callable[[Sequence[str]], bool]) -> float:
    """The moment of the first read after which the screen is as wanted."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and console.process.poll() is None:
        at = first_seen(console, seen)
        if at is not None:
            return at
        time.sleep(0.05)
    raise TerminalError("the console never showed what was waited for")


def first_seen(console: ConsoleInTerminal, seen: Callable[[Sequence[str]], bool]) -> float | None:
    replay = Replay(console.columns, console.rows)
    for chunk in console.chunks():
        replay.feed(chunk.data)
        if seen(replay.lines()):
            return chunk.at
    return None


def _bytes(fleet: SimulatedFleet, screen: str, keys: str, load: str) -> Result:
    with _attached(fleet, "--fps", "2") as console:
        _settle(console, keys)
        console.forget()
        began = time.monotonic()
        time.sleep(SECONDS)
        rate = console.written_bytes / (time.monotonic() - began)
    return result(f"{screen} {load}: bytes to the terminal at 2 Hz", rate, "B/s", WANTED[f"{load} B/s"])


def _cpu(fleet: SimulatedFleet, what: str, keys: str, wanted: str) -> Result:
    with _attached(fleet, "--fps", "4") as console:
        _settle(console, keys)
        used_s, began = console.cpu_s(), time.monotonic()
        time.sleep(SECONDS)
        share = 100 * (console.cpu_s() - used_s) / (time.monotonic() - began)
    return result(f"{what}: CPU at 4 Hz", share, "% of a core", WANTED[wanted])


def _first_frame(fleet: SimulatedFleet) -> list[Result]:
    frames: list[float] = []
    pictures: list[float] = []
    for _ in range(3):
        with _attached(fleet) as console:
            pictures.append(
                _wait(console, lambda lines: any("RUN" in line for line in lines)) - console.started_s
            )
            frame = first_seen(console, lambda lines: any(line.strip() for line in lines))
            frames.append((frame or console.started_s) - console.started_s)
    return [
        result("--connect to first frame", sorted(frames)[1], "s", WANTED["first"], frames),
        result("--connect to first picture of the fleet", sorted(pictures)[1], "s", None, pictures),
    ]


def embedded_first_frame() -> list[Result]:
    """From no argument at all to the first frame, and to the first word of the engine that is being started.
    Its model is fetched before, and no engine that runs already is found."""
    try:
        fetch_model(DEFAULT_MODEL)
    except EmbeddedError as error:
        raise TerminalError(str(error)) from error
    frames: list[float] = []
    words: list[float] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as place:
            env = {"XDG_RUNTIME_DIR": place, "INFER_CONSOLE_CONNECT": "", "INFER_CONSOLE_MODEL": ""}
            with ConsoleInTerminal([], env=env) as console:
                said = _wait(console, lambda lines: any("starting the engine" in line for line in lines))
                frame = first_seen(console, lambda lines: any(line.strip() for line in lines))
                words.append(said - console.started_s)
                frames.append((frame or said) - console.started_s)
    return [
        result("embedded, to first frame", sorted(frames)[1], "s", WANTED["first"], frames),
        result("embedded, to the engine's start shown", sorted(words)[1], "s", WANTED["first"], words),
    ]


def _keys(fleet: SimulatedFleet) -> list[Result]:
    with _attached(fleet) as console:
        _settle(console, "s" * FLEET_SORTS.index("id"))  # no replica moves because another is worse
        moved = [_key(console, key, _cursor) for key in ("j", "k") * (KEYS // 2)]
        switched = [_key(console, key, _where) for key in ("2", "1") * (KEYS // 2)]
    return [
        result("key to changed bytes, in a screen, p95", _p95(moved), "ms", WANTED["key"], moved),
        result("key to changed bytes, on a switch, p95", _p95(switched), "ms", WANTED["switch"], switched),
    ]


def _key(console: ConsoleInTerminal, key: str, of: Callable[[Sequence[str]], object]) -> float:
    """Milliseconds from a key to the first bytes after which ``of`` the screen has changed. What was on it
    is played again afterwards, so that looking costs the console nothing."""
    before = Replay(console.columns, console.rows)
    for chunk in console.chunks():
        before.feed(chunk.data)
    shown, known = of(before.lines()), len(console.chunks())
    pressed = console.send(key)
    deadline = pressed + KEY_LIMIT_S
    time.sleep(KEY_PERIOD_S)
    while time.monotonic() < deadline:
        chunks = console.chunks()
        for chunk in chunks[known:]:
            before.feed(chunk.data)
            if of(before.lines()) != shown:
                return 1000 * (chunk.at - pressed)
        known = len(chunks)
        time.sleep(0.05)
    raise TerminalError(f"key {key!r} changed nothing within {KEY_LIMIT_S:.0f} s")


def _cursor(lines: Sequence[str]) -> int | None:
    """The row that the cursor's sign stands in."""
    return next((y for y, line in enumerate(lines) if line.lstrip().startswith("▸")), None)


def _where(lines: Sequence[str]) -> bool:
    """Whether the first line names a replica."""
    return "›" in lines[0]


def _stalled_exit(fleet: SimulatedFleet) -> Result:
    """From SIGTERM to the end while the terminal reads nothing."""
    with _attached(fleet) as console:
        _settle(console, "2")
        console.stalled.set()
        time.sleep(SETTLE_S)
        told = time.monotonic()
        console.process.terminate()
        console.process.wait(START_LIMIT_S)
        took_s = time.monotonic() - told
    return result("SIGTERM to the end while the terminal reads nothing", took_s, "s", WANTED["exit"])


def _p95(samples: Sequence[float]) -> float:
    return sorted(samples)[max(0, -(-len(samples) * 95 // 100) - 1)]


def result(
    measure: str, value: float, unit: str, wanted: float | None, samples: Sequence[float] = ()
) -> Result:
    """One line of the bench document; less is better in all of them."""
    return {
        "measure": measure,
        "value": value,
        "unit": unit,
        "against": None,
        "ratio": None,
        "wanted": wanted,
        "met": None if wanted is None else value <= wanted,
        "bound": "most",
        "samples": list(samples) or [value],
        "subject": "infer-console",
        "part": "console",
        "note": None,
    }
