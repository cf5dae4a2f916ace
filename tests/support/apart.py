"""Tests that compute for long, and with nobody else, run beside all the others.

``@pytest.mark.apart``: in a long run such a test begins at once, in a process that gives way to everything
else; its turn comes at the end, when mostly all that is left is to say how it went. In a short run it is like
any other.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

#: With so many tests the run is a long one.
MANY = 300
#: Less than the campaigns, for which nobody waits as soon.
GIVE_WAY = 10
POLL_S = 0.05
#: In the other process: where it tells what became of each test.
TOLD = "INFER_CONSOLE_TESTS_APART"
#: And the pipe that ends when the run does.
LIFELINE = "INFER_CONSOLE_TESTS_LIFELINE"


@dataclass
class Told:
    """``text`` is why it failed, or was skipped."""

    outcome: str = "passed"
    text: str = ""


@dataclass
class Elsewhere:
    """The other process, which runs one test after the other."""

    process: subprocess.Popen[bytes]
    directory: "tempfile.TemporaryDirectory[str]"
    lifeline: int

    @classmethod
    def begin(cls, root: Path, tests: list[str]) -> "Elsewhere":
        directory = tempfile.TemporaryDirectory(prefix="ic-apart-")
        command = [sys.executable, "-m", "pytest", "-q", *tests]
        theirs, ours = os.pipe()
        with (Path(directory.name) / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, TOLD: f"{directory.name}/told", LIFELINE: str(theirs)},
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)
        os.setpriority(os.PRIO_PROCESS, process.pid, GIVE_WAY)
        return cls(process, directory, ours)

    def told(self, test: str) -> Told:
        """Waits for it; the test's own timeout bounds that."""
        while True:
            is_over = self.process.poll() is not None
            path = Path(self.directory.name) / "told"
            lines = path.read_text().splitlines() if path.exists() else []
            for line in lines:
                one = json.loads(line)
                if one["test"] == test:
                    return Told(one["outcome"], one["text"])
            if is_over:
                log = (Path(self.directory.name) / "log").read_text(errors="replace")
                return Told("failed", f"it was never run:\n{log[-4000:]}")
            time.sleep(POLL_S)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        os.close(self.lifeline)
        self.directory.cleanup()


_elsewhere: Elsewhere | None = None
#: In the other process: what became of the test under way.
_now = Told()


def pytest_configure() -> None:
    if LIFELINE in os.environ:
        lifeline = int(os.environ.pop(LIFELINE))
        threading.Thread(target=_end_with_the_run, args=(lifeline,), name="lifeline", daemon=True).start()


def _end_with_the_run(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _is_long(items):
        items.sort(key=lambda item: item.get_closest_marker("apart") is not None)


def pytest_collection_finish(session: pytest.Session) -> None:
    global _elsewhere
    apart = [item.nodeid for item in session.items if item.get_closest_marker("apart")]
    if apart and _is_long(session.items) and not session.config.option.collectonly:
        _elsewhere = Elsewhere.begin(session.config.rootpath, apart)
        for item in session.items:
            if isinstance(item, pytest.Function) and item.get_closest_marker("apart"):
                item.fixturenames.clear()  # they are made there


def _is_long(items: list[pytest.Item]) -> bool:
    return len(items) > MANY and TOLD not in os.environ


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if _elsewhere is None or pyfuncitem.get_closest_marker("apart") is None:
        return None
    told = _elsewhere.told(pyfuncitem.nodeid)
    if told.outcome == "failed":
        pytest.fail(told.text, pytrace=False)
    if told.outcome == "skipped":
        pytest.skip(told.text)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    global _now
    path = os.environ.get(TOLD)
    if path is None:
        return
    if report.outcome != "passed" and _now.outcome != "failed":
        _now = Told(report.outcome, report.longreprtext)
    if report.when == "teardown":
        with open(path, "a") as told:
            told.write(json.dumps({"test": report.nodeid, "outcome": _now.outcome, "text": _now.text}) + "\n")
        _now = Told()


def pytest_unconfigure() -> None:
    if _elsewhere is not None:
        _elsewhere.end()
