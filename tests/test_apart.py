"""What becomes of tests that run apart is what becomes of the run: failures, crashes, and ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.apart import GIVE_WAY, MANY
from support.eventually import eventually
from support.processes import wait_gone

TESTS = Path(__file__).parent
PATIENCE_S = 180.0
INI = """[pytest]
markers = apart: elsewhere
addopts = -p no:cacheprovider -p no:schemathesis
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.apart import (
    pytest_collection_finish, pytest_collection_modifyitems, pytest_configure, pytest_pyfunc_call,
    pytest_runtest_logreport, pytest_unconfigure,
)
"""
HEAD = f"""
import os, time, warnings
from pathlib import Path
import pytest

here = Path(__file__).parent

@pytest.mark.parametrize("number", range({MANY + 1}))
def test_one_of_many(number):
    pass

"""
ALL_KINDS = """
@pytest.fixture
def breaks_afterwards():
    yield
    raise OSError("afterwards")

@pytest.fixture
def breaks_before():
    raise OSError("before")

apart = pytest.mark.apart

@apart
def test_good(tmp_path):
    (here / "who").write_text(f"{os.getpid()} {os.getppid()} {os.nice(0)}")

@apart
@pytest.mark.parametrize("text", ["[a::b]", "käse\\u2028"])
def test_strange_name(text):
    pass

@apart
def test_bad():
    assert 1 == 2, "as was wanted"

@apart
def test_skipped():
    pytest.skip("not today")

@apart
def test_bad_afterwards(breaks_afterwards):
    pass

@apart
def test_bad_before(breaks_before):
    pass

@apart
def test_bad_at_length():
    raise ValueError("long " * 20_000)

@apart
def test_crash():
    os._exit(7)

@apart
def test_after_the_crash():
    pass
"""
LEFT_BEHIND = """
@pytest.fixture(scope="session")
def unwell():
    yield
    os._exit(5)

@pytest.mark.apart
def test_good(unwell):
    pass

@pytest.mark.apart
def test_last():
    pass
"""
HANGING = """
@pytest.mark.apart
def test_hanging():
    (here / "pid").write_text(f"{os.getpid()} ")
    time.sleep(1000)
"""


def begin(directory: Path, tests: str) -> "subprocess.Popen[str]":
    (directory / "pytest.ini").write_text(INI)
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_many.py").write_text(HEAD + tests)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-rfEs"],
        cwd=directory,
        env={**os.environ, "CI": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A run that was started in a shell's background would not hear of ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_every_kind_of_end_is_the_runs(tmp_path: Path) -> None:
    run = begin(tmp_path, ALL_KINDS)
    out, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert re.search(rf"^6 failed, {MANY + 4} passed, 1 skipped in .*s$", out.splitlines()[-1]), out[-3000:]
    failed = set(re.findall(r"^FAILED test_many.py::(\w+)", out, re.MULTILINE))
    assert failed == {
        "test_bad",
        "test_bad_afterwards",
        "test_bad_before",
        "test_bad_at_length",
        "test_crash",
        "test_after_the_crash",
    }
    for told in ("as was wanted", "OSError: afterwards", "OSError: before", "not today", "ended with 7"):
        assert told in out
    pid, parent, niceness = map(int, (tmp_path / "who").read_text().split())
    assert parent == run.pid
    assert niceness >= min(os.nice(0) + 1, GIVE_WAY)
    assert wait_gone([pid]) == []


def test_what_goes_wrong_after_the_last_test_fails_the_run(tmp_path: Path) -> None:
    run = begin(tmp_path, LEFT_BEHIND)
    out, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert re.findall(r"^FAILED test_many.py::(\w+)", out, re.MULTILINE) == ["test_last"]
    assert "ended with 5" in out


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, pytest.ExitCode.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_nothing_is_left_of_a_run_that_is_ended(tmp_path: Path, number: int, code: int) -> None:
    run = begin(tmp_path, HANGING)
    told = tmp_path / "pid"
    pid = int(eventually(lambda: told.exists() and told.read_text().endswith(" ") and told.read_text()))
    os.kill(run.pid, number)
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == code
    assert wait_gone([pid]) == []
