"""The private directory of one running fleet: the replicas' socket and logs.

A lock in it is held for as long as its server lives, so what servers that were killed left behind can be
told apart and is removed by the next one.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import time
from pathlib import Path

log = logging.getLogger(__name__)

#: Short, since a socket's path has to be.
PARENT = Path("/tmp")
PREFIX = "infer-"
LOCK = "lock"
#: A directory without a lock that is younger than this may be about to get one.
YOUNG_S = 60.0


class RunDir:
    """``given`` is the caller's to remove; otherwise the directory is made by ``open`` and gone after
    ``close``."""

    def __init__(self, given: Path | None, name: str, parent: Path = PARENT) -> None:
        self._own = given is None
        self.path = given or parent / f"{PREFIX}{name}"
        self._lock: int | None = None

    def open(self) -> None:
        """Make the directory, readable by its owner alone. OSError when that is not possible."""
        if not self._own:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        # Exclusive: whoever made a directory of this name before us does not get our socket.
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sweep(self.path.parent)

    def close(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def sweep(parent: Path) -> list[Path]:
    """Remove this user's directories of dead servers; returns them."""
    removed: list[Path] = []
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it went away, or is not ours
            info = path.lstat()
            if info.st_uid == os.getuid() and time.time() - info.st_mtime > YOUNG_S and _is_abandoned(path):
                shutil.rmtree(path)
                removed.append(path)
    if removed:
        log.info("removed %d directories of servers that were killed", len(removed))
    return removed


def _is_abandoned(path: Path) -> bool:
    """It has our lock file, and nobody holds it."""
    lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
