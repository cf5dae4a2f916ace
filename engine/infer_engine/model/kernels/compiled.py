"""Where compiled kernels are kept, so that only the first start of a version on a machine compiles them.

Import this before anything that is compiled: numba asks where its cache is as it sees each function.
"""

import hashlib
import os
import shutil
from pathlib import Path

import llvmlite.binding as llvm
import numba

from infer_engine.model.kernels.simd import SIMD
from infer_engine.model.store import cache_dir

#: Compiled versions that are kept: of other machines that share the directory, and older ones.
_KEPT = 4


def use_cache() -> None:
    """In NUMBA_CACHE_DIR where that is set. OSError when the directory cannot be written."""
    moved = os.environ.get("NUMBA_CACHE_DIR")
    parent = Path(moved) if moved else cache_dir() / "kernels"
    mine = parent / _key()
    mine.mkdir(parents=True, exist_ok=True)
    mine.touch()
    by_last_use = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_last_use[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    numba.config.CACHE_DIR = str(mine)  # type: ignore[attr-defined]


def _key() -> str:
    """numba sees when a function's own file changes, but not when those change that it is built from."""
    digest = hashlib.sha256(f"{numba.__version__} {llvm.get_host_cpu_name()} {SIMD}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:24]
