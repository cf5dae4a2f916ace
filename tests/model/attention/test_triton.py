"""The Triton kernel against float64, in Triton's interpreter: its arithmetic and its addresses, not its
compilation or speed."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton has no wheel for this platform")

SCRIPT = Path(__file__).with_name("interpret_triton.py")


@cache
def errors() -> dict[str, tuple[float, float]]:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_kernel_equals_float64() -> None:
    wrong = {name: error for name, (error, tolerance) in errors().items() if not error <= tolerance}
    assert not wrong
    assert len(errors()) > 10
