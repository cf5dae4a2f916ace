"""The console in a real pseudo-terminal: how it starts, and how it leaves."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from support.eventually import eventually
from support.terminal import PYTHONPATH, TESTS, Terminal

pytestmark = pytest.mark.terminal
LEFT_ALTERNATE_SCREEN, CURSOR_SHOWN = b"\x1b[?1049l", b"\x1b[?25h"
#: What the kernel tells of a terminal with more unread bytes than it keeps at hand. A frame has several times
#: as many.
FULL = 4_000


def console(what: str = "incident", columns: int = 120, rows: int = 36) -> Terminal:
    argv = [sys.executable, "-m", "support.demo", what]
    return Terminal(argv, columns=columns, rows=rows, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS)


def assert_terminal_is_as_before(terminal: Terminal) -> None:
    assert terminal.tty_now() == terminal.tty_before
    assert LEFT_ALTERNATE_SCREEN in terminal.raw
    assert CURSOR_SHOWN in terminal.raw


def test_it_is_drawn_in_a_small_window_and_quits() -> None:
    with console("incident", 80, 24) as terminal:
        terminal.wait_for("RUN 186")
        terminal.wait_for("q quit")
        lines = terminal.lines()
        assert "LIVE" in lines[0]
        assert "q quit" in lines[-1]
        terminal.send("2")
        terminal.wait_for("ROSTER 9")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_terminal_is_as_before(terminal)


def test_it_is_drawn_where_stdout_is_when_stderr_goes_to_a_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shell = ["sh", "-c", f"exec {sys.executable} -m support.demo incident 2>{log}"]
    with Terminal(shell, columns=120, rows=36, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS) as terminal:
        terminal.wait_for("RUN 186")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_terminal_is_as_before(terminal)
        assert log.read_bytes() == b""


def unread(leader: int) -> int:
    """Bytes that were written to the terminal and that nobody has read."""
    return int.from_bytes(fcntl.ioctl(leader, termios.FIONREAD, b"\0" * 4), sys.byteorder)


@pytest.mark.parametrize("when", ["the terminal is raw", "the terminal is full"])
def test_a_terminal_that_nobody_reads_does_not_hold_it(when: str) -> None:
    """Raw is what it is made first of all, before anything is drawn: a signal may come right then."""
    leader, follower = pty.openpty()
    try:
        before = termios.tcgetattr(follower)
        process = subprocess.Popen(
            [sys.executable, "-m", "support.demo"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=os.environ
            | {"PYTHONPATH": PYTHONPATH, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50"},
            cwd=TESTS,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60
            while termios.tcgetattr(follower)[3] == before[3]:
                assert time.monotonic() < deadline, "it never started"
                time.sleep(0.001)
            if when == "the terminal is full":
                eventually(lambda: unread(leader) >= FULL)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
            assert termios.tcgetattr(follower) == before
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(60)
    finally:
        os.close(leader)
        os.close(follower)
