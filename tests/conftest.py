"""Puts ``tests/`` on the path, so that tests share ``support``."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# Read once, when torch loads: idle compute threads sleep, else they starve the servers that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# What servers keep, such as their audits, is none of the user's.
_state = tempfile.TemporaryDirectory(prefix="ice-state-")
os.environ["XDG_STATE_HOME"] = _state.name

# Tests have cache directories of their own; compiled kernels do not depend on whose they are.
if "NUMBA_CACHE_DIR" not in os.environ:
    from infer_engine.model.store import cache_dir

    os.environ["NUMBA_CACHE_DIR"] = str(cache_dir() / "kernels")
