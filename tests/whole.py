"""The whole suite, as ``make test`` runs it.

Tests drive real processes, terminals and clocks, and among thousands one may fail for the machine's sake. A
few that failed are run once more by themselves, in plain sight: both closing lines are printed, and those
that passed only then are named. What fails again, or fails in number, fails the run.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: More than so many are no accident.
MOST_AGAIN = 4


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "failed"
        # Written by the conftest.
        code = pytest(*sys.argv[1:], INFER_TESTS_FAILED=str(told))
        failed = sorted(set(told.read_text().splitlines())) if told.exists() else []
    if code != 1 or not 0 < len(failed) <= MOST_AGAIN:
        return code
    print(f"\n{len(failed)} failed among the others; once more, alone:", *failed, sep="\n  ", flush=True)
    code = pytest(*failed)
    if code == 0:
        print("passed only when alone, which wants a look:", *failed, sep="\n  ", flush=True)
    return code


def pytest(*words: str, **env: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *words]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
