"""A window that changes its size all the time, and tmux with clients of several sizes: at rest the layout is
that of the last one."""

import random
import re
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.oracle import assert_at_rest, oracle, told
from support.terminal import PYTHONPATH, TESTS, Terminal

pytestmark = pytest.mark.terminal
STORM = 100
KEY_BAR = "q quit"


def at_size(terminal: Terminal) -> None:
    """The key bar is in the last row of the window and the first one ends at its right: what is drawn for
    another size has them elsewhere."""

    def seen(_text: str) -> bool:
        lines = terminal.lines()
        return KEY_BAR in lines[-1] and bool(re.search(r"\d\dZ ?$", lines[0]))

    terminal.wait(f"a layout for {terminal.columns}×{terminal.rows}", seen)


@pytest.mark.parametrize("final", [(120, 36), (60, 18)])
def test_after_a_storm_of_sizes_the_screen_is_the_last_ones(final: tuple[int, int], tmp_path: Path) -> None:
    dice = random.Random(final[0])
    path = tmp_path / "told"
    with oracle(path, 100, 30) as terminal:
        terminal.wait_for("RUN 186")
        for number in range(STORM):
            # All of them on one side of the last: none of them puts the key bar where it will be.
            wide, high = final if final[0] > 100 else (200, 60)
            least = (2, 1) if final[0] > 100 else (final[0] + 1, final[1] + 1)
            terminal.resize(dice.randrange(least[0], wide), dice.randrange(least[1], high))
            if number % 10 == 0:
                terminal.send(dice.choice("12345t?"))
                time.sleep(dice.choice((0.0, 0.02)))  # some are drawn, some are not
        terminal.resize(*final)
        terminal.send("\x1b", "\x1b", "1")
        at_size(terminal)
        assert_at_rest(terminal, path, 1, [f"{STORM} sizes"])
        terminal.send("q")
        assert terminal.wait_exit() == 0


@contextmanager
def client(socket: Path, columns: int, rows: int, *words: str, **env: str) -> Generator[Terminal]:
    argv = ["tmux", "-u", "-S", str(socket), "-f", "/dev/null", *words]
    with Terminal(argv, columns=columns, rows=rows, env=env, cwd=TESTS) as terminal:
        yield terminal


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux_the_layout_follows_the_client_that_came_last(tmp_path: Path) -> None:
    path, socket = tmp_path / "told", tmp_path / "tmux"
    start = ["new-session", "-s", "console", f"{sys.executable} -m support.demo oracle"]
    settings = [";", "set", "status", "off", ";", "set", "-s", "escape-time", "0"]
    env = {"PYTHONPATH": PYTHONPATH, "ORACLE": str(path)}
    with client(socket, 120, 36, *start, *settings, **env) as first:
        try:
            first.wait_for("RUN 186")
            at_size(first)
            number = 1
            for columns, rows in ((80, 24), (160, 50)):
                with client(socket, columns, rows, "attach", "-t", "console") as second:
                    at_size(second)
                    number = assert_same_text(second, path, number)
                    second.send("\x02d")
                    assert second.wait_exit() == 0
                at_size(first)
                number = assert_same_text(first, path, number)
            first.send("q")
            assert first.wait_exit() == 0
        finally:
            with client(socket, 80, 24, "kill-server") as last:
                last.wait_exit()


def assert_same_text(terminal: Terminal, path: Path, number: int) -> int:
    """Text alone: colours are tmux's. The window has the client's size, or it could not be the same. What the
    app told may have been before its last frame: it is asked again for as long as it tells something else.
    Returns the number of its next telling."""

    def texts(grid: list[list[tuple[object, ...]]]) -> list[list[object]]:
        return [[cell[0] for cell in row] for row in grid]

    before: list[list[object]] = []
    while (wanted := texts(told(terminal, path, number))) != before:
        before, number = wanted, number + 1
    terminal.wait("what the app says that it shows", lambda _: texts(terminal.grid()) == wanted)
    return number + 1
