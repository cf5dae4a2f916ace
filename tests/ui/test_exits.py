"""Every way out leaves every mode of the terminal as it was."""

import inspect
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from support.eventually import eventually
from support.terminal import PYTHONPATH, TESTS, Terminal, to_replica_and_back
from textual.drivers import linux_driver

pytestmark = pytest.mark.terminal
MODE = re.compile(rb"\x1b\[\?(\d+(?:;\d+)*)([hl])")
#: Modes that are on in a terminal that nobody has touched: lines wrap, the cursor is shown.
ON_BY_ITSELF = {7, 25}


def modes(raw: bytes) -> dict[int, bool]:
    """Every mode that was ever set or reset, as it is in the end."""
    last: dict[int, bool] = {}
    for numbers, final in MODE.findall(raw):
        for number in numbers.split(b";"):
            last[int(number)] = final == b"h"
    return last


def leave(terminal: Terminal, how: str) -> None:
    match how:
        case "q":
            terminal.send("q")
        case "ctrl+c":
            terminal.send("ctrl+c")
        case "crash":
            terminal.send("2")
        case "stalled":
            terminal.stalled.set()
            terminal.send("tttttttt")
            os.kill(terminal.pid, signal.SIGTERM)
        case name:
            os.kill(terminal.pid, signal.Signals[name])


def test_an_answer_that_is_under_way_is_not_left_to_the_shell() -> None:
    """On a far link the answer to the last frame comes when the operator has long pressed q."""
    argv = [sys.executable, "-m", "support.demo", "patient"]
    with Terminal(
        argv, columns=120, rows=36, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS, answers=True
    ) as terminal:
        terminal.answer_delay_s = 0.3
        terminal.wait_for("RUN 186")
        terminal.send("t")
        terminal.wait("an answer", lambda _: terminal.answered)
        terminal.send("ttq")
        assert terminal.wait_exit() == 0
        assert terminal.answered == terminal.raw.count(b"\x1b[6n")
        assert not terminal.unread()


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("q", 0),
        ("ctrl+c", 0),
        ("SIGTERM", 128 + signal.SIGTERM),
        ("SIGHUP", 128 + signal.SIGHUP),
        ("SIGQUIT", 128 + signal.SIGQUIT),
        ("crash", 1),
        ("stalled", 128 + signal.SIGTERM),
    ],
)
def test_modes_are_as_they_were(how: str, status: int) -> None:
    argv = [sys.executable, "-m", "support.demo", "crash" if how == "crash" else "incident"]
    env = {"PYTHONPATH": PYTHONPATH}
    with Terminal(argv, columns=120, rows=36, env=env, cwd=TESTS, answers=True) as terminal:
        terminal.wait_for("RUN 186")
        terminal.wait("the title kept", lambda _: b"\x1b[22;2t" in terminal.raw)
        leave(terminal, how)
        assert terminal.wait_exit() == status
        terminal.stalled.clear()
        assert terminal.tty_now() == terminal.tty_before
        terminal.read_all()
        raw = bytes(terminal.raw)
        assert b"\x1b[?1049l" in raw
        left = {mode: on for mode, on in modes(raw).items() if on != (mode in ON_BY_ITSELF)}
        assert not left
        assert {1049, 25, 7, 1004, 2004} <= set(modes(raw))
        assert raw.count(b"\x1b[<u") >= len(re.findall(rb"\x1b\[>\d+u", raw)), "keyboard mode left on"
        assert raw.count(b"\x1b[22;2t") == raw.count(b"\x1b[23;2t") == 1
        after = raw.rsplit(b"\x1b[?1049l", 1)[1]
        assert b"\x1b[6n" not in after, "an answer would be typed into the shell"
        if how == "crash":
            assert_plain_traceback(after.decode())


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.parametrize("how", ["SIGSTOP", "SIGTSTP"])
def test_what_was_stopped_goes_on_and_leaves_the_terminal_as_it_was(how: str) -> None:
    argv = [sys.executable, "-m", "support.demo", "incident"]
    env = {"PYTHONPATH": PYTHONPATH}
    with Terminal(argv, columns=120, rows=36, env=env, cwd=TESTS, answers=True) as terminal:
        terminal.wait_for("RUN 186")
        for _ in range(2):
            os.kill(terminal.pid, signal.Signals[how])
            eventually(lambda: stopped(terminal.pid))
            before = len(terminal.raw)
            os.kill(terminal.pid, signal.SIGCONT)
            terminal.wait("the screen anew", lambda _, before=before: b"RUN" in terminal.raw[before:])
            to_replica_and_back(terminal)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert terminal.tty_now() == terminal.tty_before
        assert not {mode: on for mode, on in modes(terminal.raw).items() if on != (mode in ON_BY_ITSELF)}


def test_who_ends_it_and_has_it_continue_gets_the_terminal_back() -> None:
    """As timeout(1) and systemd do."""
    argv = [sys.executable, "-m", "support.demo", "incident"]
    with Terminal(argv, columns=120, rows=36, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS) as terminal:
        terminal.wait_for("RUN 186")
        os.kill(terminal.pid, signal.SIGTERM)
        os.kill(terminal.pid, signal.SIGCONT)
        assert terminal.wait_exit() == 128 + signal.SIGTERM
        assert terminal.tty_now() == terminal.tty_before
        assert not {mode: on for mode, on in modes(terminal.raw).items() if on != (mode in ON_BY_ITSELF)}


def test_textual_still_knows_what_it_has_suspended() -> None:
    source = inspect.getsource(linux_driver.LinuxDriver)
    assert "self._must_signal_resume = True" in source
    assert "signal.signal(signal.SIGCONT" in source


def test_a_terminal_that_is_gone_ends_it_without_a_signal() -> None:
    argv = [sys.executable, "-m", "support.demo", "incident"]
    with Terminal(argv, columns=120, rows=36, env={"PYTHONPATH": PYTHONPATH}, cwd=TESTS) as terminal:
        terminal.wait_for("RUN 186")
        terminal.hang_up()
        assert terminal.process.wait(60) == 128 + signal.SIGHUP


def assert_plain_traceback(after: str) -> None:
    """The error is told, and neither does its text act nor are the values of locals in it."""
    assert "ValueError: ␛]52;c;eA==␇ and <202E> bidi" in after.replace("\r\n", "")
    assert "a local variable" not in after.replace('secret = "a local variable"', "")
    assert "\x1b]" not in after
