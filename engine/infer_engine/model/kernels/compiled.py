"""Where compiled kernels are kept, so that only the first start of a version on a machine compiles them.

Import this before anything that is compiled: numba asks where its cache is as it sees each function.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import llvmlite.binding as llvm
import numba

from infer_engine.model.file_lock import file_lock
from infer_engine.model.kernels.simd import SIMD
from infer_engine.model.store import cache_dir

log = logging.getLogger(__name__)

#: Compiled versions that are kept: of other machines that share the directory, and older ones.
_KEPT = 4
#: How long to wait for another process that compiles the same: several times what it takes.
_PATIENCE_S = 300.0
#: What is compiled last, with all else in it.
_WHOLE = "*/forward.forward-*.nbi"
_place: Path | None = None


def use_cache() -> None:
    """In NUMBA_CACHE_DIR where that is set. Where it cannot be written, what is compiled is for this process
    alone, and the log says so."""
    global _place
    moved = os.environ.get("NUMBA_CACHE_DIR")
    parent = Path(moved) if moved else cache_dir() / "kernels"
    mine = parent / _key()
    try:
        mine.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=mine):
            pass
        mine.touch()
        by_last_use = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError as error:
        _place = None
        log.warning("compiled kernels cannot be kept, every start compiles them again: %s", error)
        return
    for old in by_last_use[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    _place = mine
    numba.config.CACHE_DIR = str(mine)  # type: ignore[attr-defined]


def kept_on_disk() -> bool:
    return _place is not None


@contextmanager
def one_compiles(waiting: Callable[[], None]) -> Generator[None]:
    """Of processes that start at once with nothing compiled, one compiles and the others wait for it
    (``waiting`` is called at each look): together they would be no sooner ready."""
    with ExitStack() as held:
        if _place is not None and not any(_place.glob(_WHOLE)):
            try:
                held.enter_context(file_lock(_place / "compiling.lock", _PATIENCE_S, waiting))
            except (OSError, TimeoutError) as error:
                log.warning("compiling the kernels beside another process: %s", error)
        yield


def _key() -> str:
    """numba sees when a function's own file changes, but not when those change that it is built from."""
    digest = hashlib.sha256(f"{numba.__version__} {llvm.get_host_cpu_name()} {SIMD}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:24]
