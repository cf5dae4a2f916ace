"""The Triton kernel without a GPU: its results against float64, in Triton's interpreter, and its compilation
for GPUs that are not here. What runs on one is checked when a replica starts there."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton has no wheel for this platform")

FOLDER = Path(__file__).parent
#: What the smallest GPU in question has for a block, in bytes.
SHARED_MEMORY = 64 << 10


def printed(script: str, *arguments: str) -> dict[str, list[float]]:
    command = [sys.executable, str(FOLDER / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.apart
def test_the_kernel_equals_float64() -> None:
    errors = printed("interpret_triton.py")
    assert len(errors) > 10
    assert not {name: error for name, (error, tolerance) in errors.items() if not error <= tolerance}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="triton brings its assembler for x86-64 alone")
@pytest.mark.apart
def test_the_kernel_compiles_for_gpus(tmp_path: Path) -> None:
    needs = printed("compile_triton.py", str(tmp_path))
    assert len(needs) == 3
    for name, (shared, spilled) in needs.items():
        assert shared <= SHARED_MEMORY, name
        assert spilled == 0, name
