"""Puts ``tests/`` on the path, so that tests share ``support``."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# The hooks of tests that run apart.
from support.apart import (  # noqa: F401
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_pyfunc_call,
    pytest_runtest_logreport,
    pytest_unconfigure,
)

# The same examples in every run, and no verdict about a machine that has much else to do: a run that fails
# fails again. More of them, drawn anew: HYPOTHESIS_PROFILE=searching.
settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("searching", settings.get_profile("suite"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Read once, when torch loads: idle compute threads sleep, else they starve the servers that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Servers that tests start keep their state where nobody else looks for it.
if "INFER_CONSOLE_TEST_STATE" not in os.environ:
    state = tempfile.mkdtemp(prefix="ic-state-")
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    os.environ["INFER_CONSOLE_TEST_STATE"] = os.environ["XDG_STATE_HOME"] = state

# Tests have cache directories of their own; compiled kernels do not depend on whose they are.
if "NUMBA_CACHE_DIR" not in os.environ:
    from infer_engine.model.store import cache_dir

    os.environ["NUMBA_CACHE_DIR"] = str(cache_dir() / "kernels")
