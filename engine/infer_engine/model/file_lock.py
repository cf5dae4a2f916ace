"""A lock between processes, so that two of them do not write the same cache file at once."""

import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.1


@contextmanager
def file_lock(path: Path, timeout_s: float, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold ``path`` (created if need be) exclusively; ``waiting`` is called at each poll while it is taken.

    The kernel drops the lock when its holder dies, however it dies. Raises TimeoutError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise TimeoutError(
                        f"another process has held {path} for over {timeout_s:.0f} s"
                    ) from None
                if waiting:
                    waiting()
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)
