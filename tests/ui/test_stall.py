"""A terminal that stops reading: the collector goes on, nothing is drawn for nobody, and what is shown
afterwards is the present, not a backlog."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.eventually import eventually
from support.terminal import PYTHONPATH, TESTS, Terminal

pytestmark = pytest.mark.terminal
#: Pictures that are made meanwhile, ten a second at most: more than enough for the queue, the
#: pseudo-terminal's buffer and every timer to matter.
STALL_PICTURES = 20
#: One picture is under this; a backlog of STALL_PICTURES would be several times as much.
ONE_FRAME = 40_000


@contextmanager
def ticker(report: Path, *, answers: bool) -> Iterator[Terminal]:
    """A console whose collector makes ten pictures a second, each with another number of running requests
    and every fifth with an alarm of its own, on a thread as the real one does."""
    argv = [sys.executable, "-m", "support.ticker", str(report)]
    env = {"PYTHONPATH": PYTHONPATH}
    with Terminal(argv, columns=160, rows=45, env=env, cwd=TESTS, answers=answers) as terminal:
        terminal.wait_for(r"RUN \d+")
        yield terminal


def reported(report: Path) -> dict[str, int]:
    return json.loads(report.read_text(encoding="utf-8"))


@pytest.mark.parametrize("answers", [True, False])
def test_what_happens_while_the_terminal_hangs_is_not_lost(answers: bool, tmp_path: Path) -> None:
    report = tmp_path / "report"
    with ticker(report, answers=answers) as terminal:
        eventually(lambda: reported(report)["pictures"] >= 5)
        terminal.stalled.set()
        before, pictures = len(terminal.raw), reported(report)["pictures"]
        # The collector does not stand still.
        eventually(lambda: reported(report)["pictures"] >= pictures + STALL_PICTURES)
        during = reported(report)
        assert during["alarms"] == during["pictures"] // 5, "an alarm was lost"
        terminal.stalled.clear()
        number = during["pictures"]
        terminal.wait("the present", lambda text: _running(text) >= number)
        assert len(terminal.raw) - before < 2 * ONE_FRAME, "a backlog was written"
        terminal.send("q")
        assert terminal.wait_exit() == 0


def _running(text: str) -> int:
    found = re.search(r"RUN (\d[\d,]*)", text)
    return int(found[1].replace(",", "")) if found else -1


def test_a_lost_line_ends_it_while_the_terminal_hangs(tmp_path: Path) -> None:
    report = tmp_path / "report"
    with ticker(report, answers=True) as terminal:
        terminal.stalled.set()
        terminal.send("ttttjkjk")
        pictures = reported(report)["pictures"]
        eventually(lambda: reported(report)["pictures"] >= pictures + 5)  # each of them a frame for nobody
        os.kill(terminal.pid, signal.SIGHUP)
        assert terminal.wait_exit() == 128 + signal.SIGHUP
        assert terminal.tty_now() == terminal.tty_before
