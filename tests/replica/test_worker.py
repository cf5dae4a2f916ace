"""Worker processes: that they end with whoever started them, and say what is wrong with their start."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import alive, children, wait_gone
from support.tiny_model import write_tiny_gguf

DRIVER = Path(__file__).parents[1] / "support" / "fleet_driver.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.mark.parametrize("when", ["loading", "ready"])
def test_when_the_server_is_killed_its_replicas_end(model: Path, when: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, str(DRIVER), str(model), when],
        stdout=subprocess.PIPE,
        text=True,
    )
    workers: list[int] = []
    run_dir = Path("/nonexistent")
    try:
        assert driver.stdout is not None
        word, _, directory = driver.stdout.readline().strip().partition(" ")
        assert word == "up"
        run_dir = Path(directory)
        workers = children(driver.pid)
        assert len(workers) == 1
        driver.kill()
        driver.wait(60)
        assert wait_gone(workers) == []
    finally:
        driver.kill()
        driver.wait(60)
        if driver.stdout is not None:
            driver.stdout.close()
        for pid in workers:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(run_dir, ignore_errors=True)


def test_a_worker_without_a_configuration_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infer_engine.replica.worker"],
        input=b'{"replica": 7}\n',
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert b"no usable configuration" in done.stderr
