"""An app that tells in a file what its whole screen would be by Textual's own renderer, and whether a
terminal shows that: ``support.demo`` oracle."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyte
from support.terminal import PYTHONPATH, TESTS, Terminal, grid

TELL = "\x0f"


def oracle(
    path: Path, columns: int = 120, rows: int = 36, *, answers: bool = True, what: str = "oracle"
) -> Terminal:
    argv = [sys.executable, "-m", "support.demo", what]
    env = {"PYTHONPATH": PYTHONPATH, "ORACLE": str(path)}
    return Terminal(argv, columns=columns, rows=rows, env=env, cwd=TESTS, answers=answers)


def told(terminal: Terminal, path: Path, number: int) -> list[list[tuple[object, ...]]]:
    """The screen by Textual's own renderer, on a terminal that was cleared."""
    terminal.send(TELL)
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text(encoding="utf-8").startswith(f"{number}\n")):
        assert time.monotonic() < deadline, "the app never told what it shows"
        time.sleep(0.02)
    wanted = pyte.Screen(terminal.columns, terminal.rows)
    stream = pyte.Stream(wanted)
    stream.feed("\x1b[?7l")
    stream.feed(path.read_text(encoding="utf-8").split("\n", 1)[1].replace("\n", "\r\n"))
    return grid(wanted)


def shows(terminal: Terminal, wanted: Sequence[object], wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while terminal.grid() != wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def assert_shows(terminal: Terminal, wanted: Sequence[object], keys: Sequence[str]) -> None:
    if not shows(terminal, wanted, 60):
        shown = terminal.grid()
        rows = [y for y, (a, b) in enumerate(zip(shown, wanted, strict=True)) if a != b]
        raise AssertionError(f"after {keys} rows {rows} differ:\n{terminal.text()}")


def assert_at_rest(terminal: Terminal, path: Path, number: int, keys: Sequence[str]) -> int:
    """What the app told may have been before its last frame: it is asked again for as long as it tells
    something else. Returns the number of its next telling."""
    before: Sequence[object] = ()
    while (wanted := told(terminal, path, number)) != before:
        if shows(terminal, wanted, 1):
            return number + 1
        before, number = wanted, number + 1
    assert_shows(terminal, wanted, keys)
    return number + 1
