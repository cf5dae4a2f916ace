"""Whether the kernel killed for want of memory: how often it has, where this process counts."""

from pathlib import Path

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


def oom_kills(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Kills so far in this process's control group, which its children share; of the whole machine where
    the group does not tell; None where nobody does."""
    for path in _of_this_group(proc, cgroup):
        if (count := _count(path)) is not None:
            return count
    return _count(proc / "vmstat")


def _of_this_group(proc: Path, cgroup: Path) -> list[Path]:
    """Files that may tell, of cgroup v2 or v1. In a container the group's path is not that which is seen
    there, and its root is the group."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += [cgroup / path.lstrip("/") / "memory.events", cgroup / "memory.events"]
        elif "memory" in controllers.split(","):
            root = cgroup / "memory"
            found += [root / path.lstrip("/") / "memory.oom_control", root / "memory.oom_control"]
    return found


def _count(path: Path) -> int | None:
    """The line ``oom_kill N``."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return None
