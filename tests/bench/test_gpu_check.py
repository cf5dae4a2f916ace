"""The script for GPU machines, end to end on the CPU: it finds everything right, or says what is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def test_the_self_test_finds_everything_right(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/gpu_check.py"), "--self-test", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["version"] == 1
    met = {result["measure"]: result["met"] for result in document["results"]}
    demanded = [measure for measure, fine in met.items() if fine is not None]
    assert all(met[measure] for measure in demanded)
    for what in ("attention gather bf16", "attention twin fp32", "small synthetic fp32 graphs, 3 sequences"):
        assert any(measure.startswith(what) for measure in demanded), what
    for what in ("copy bandwidth", "synthetic tiny bf16 decode replayed, batch 4", "matrix rate"):
        assert any(measure.startswith(what) for measure in met), what
    assert not any("Error" in str(result["value"]) for result in document["results"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/gpu_check.py")], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 2
    assert "--self-test" in done.stderr
