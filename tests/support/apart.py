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
#: Of a test that says nothing else: others may take nine tenths of the machine.
TIMEOUT_S = 900
#: After the last test is told: fixtures of the session end, the closing line is printed.
END_S = 60
#: The other process finds here where it tells what became of each test.
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
    last: str

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
        return cls(process, directory, ours, tests[-1])

    def told(self, test: str) -> Told:
        """Waits for it; its timeout in the other process bounds that, and the caller's own."""
        while True:
            is_over = self.process.poll() is not None
            if (told := self._all().get(test)) is not None:
                return told if test != self.last else self._at_the_end(told)
            if is_over:
                code = self.process.returncode
                return Told("failed", f"it ended with {code}, before this test:\n{self._log()}")
            time.sleep(POLL_S)

    def _all(self) -> dict[str, Told]:
        path = Path(self.directory.name) / "told"
        # What follows the last line's end is being written.
        whole, _, _ = (path.read_text() if path.exists() else "").rpartition("\n")
        each = [json.loads(line) for line in whole.splitlines()]
        return {one["test"]: Told(one["outcome"], one["text"]) for one in each}

    def _at_the_end(self, told: Told) -> Told:
        """What goes wrong when all tests are done is wrong, too."""
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return Told("failed", f"all was told, and {END_S} s later it had not ended:\n{self._log()}")
        failed = any(each.outcome == "failed" for each in self._all().values())
        if code != (pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK):
            return Told("failed", f"it ended with {code}:\n{told.text}\n{self._log()}")
        return told

    def _log(self) -> str:
        return (Path(self.directory.name) / "log").read_text(errors="replace")[-4000:]

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        os.close(self.lifeline)
        self.directory.cleanup()


_elsewhere: Elsewhere | None = None
#: In the other process: where to tell, and what became of the test under way. What tests start does not
#: inherit it.
_tell: str | None = None
_now = Told()


def elsewhere() -> int | None:
    """The other process, where there is one."""
    return None if _elsewhere is None else _elsewhere.process.pid


def pytest_configure() -> None:
    global _tell
    _tell = os.environ.pop(TOLD, None)
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
    apart = [item for item in session.items if item.get_closest_marker("apart")]
    is_long = _is_long(session.items)
    if not apart or session.config.option.collectonly or not (is_long or _tell):
        return
    for item in apart:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        if is_long and isinstance(item, pytest.Function):
            item.fixturenames = []  # they are made there
    if is_long:
        _elsewhere = Elsewhere.begin(session.config.rootpath, [item.nodeid for item in apart])


def _is_long(items: list[pytest.Item]) -> bool:
    return len(items) > MANY and _tell is None


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
    if _tell is None:
        return
    if report.outcome != "passed" and _now.outcome != "failed":
        _now = Told(report.outcome, report.longreprtext)
    if report.when == "teardown":
        with open(_tell, "a") as told:
            told.write(json.dumps({"test": report.nodeid, "outcome": _now.outcome, "text": _now.text}) + "\n")
        _now = Told()


def pytest_unconfigure() -> None:
    if _elsewhere is not None:
        _elsewhere.end()
