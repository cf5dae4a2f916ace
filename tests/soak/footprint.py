"""What processes hold: memory, open files, threads; and how that changes over time. From /proc."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB = 2**20


@dataclass(frozen=True)
class Footprint:
    rss_bytes: int
    fds: int
    threads: int


def footprint(pid: int) -> Footprint:
    """OSError when there is no such process (any more)."""
    proc = Path(f"/proc/{pid}")
    resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Footprint(resident, len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")))


@dataclass
class Growth:
    """Resident memory of several processes over time, by name."""

    at_s: list[float] = field(default_factory=list[float])
    rss_bytes: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def note(self, now_s: float, pids: Mapping[str, int]) -> None:
        self.at_s.append(now_s)
        for name, pid in pids.items():
            self.rss_bytes.setdefault(name, []).append(footprint(pid).rss_bytes)

    def mib_per_min(self, name: str, from_s: float) -> float:
        """The slope of the straight line through what was noted since ``from_s``."""
        points = [(t, rss) for t, rss in zip(self.at_s, self.rss_bytes[name], strict=True) if t >= from_s]
        return 60 * slope(points) / MIB


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares; 0 of fewer than two points."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
