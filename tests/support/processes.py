"""Which processes a server or a console started, and whether they are gone."""

import os
import time
from collections.abc import Collection
from pathlib import Path

from support import apart


def children(pid: int, but: Collection[int] = ()) -> list[int]:
    """All living descendants of ``pid``, from /proc; without ``but`` and what descends from those."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended while we looked
        if fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found and child not in but} - found
        if not more:
            return sorted(found - {pid})
        found |= more


def started_here() -> list[int]:
    """All that this process has started: without the tests that run apart, whose processes come and go."""
    elsewhere = apart.elsewhere()
    return children(os.getpid(), () if elsewhere is None else (elsewhere,))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: list[int], timeout_s: float = 60.0) -> list[int]:
    """Those of ``pids`` still alive after at most ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = [pid for pid in pids if alive(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
