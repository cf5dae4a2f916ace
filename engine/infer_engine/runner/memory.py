"""How much memory this machine has left, and how many KV blocks that makes."""

import os
from dataclasses import dataclass
from pathlib import Path

from infer_engine.model.errors import MemoryShort


@dataclass(slots=True, frozen=True)
class PoolShare:
    """A pool that nobody sized takes at most this share of its part of what is available, and at most so many
    blocks."""

    share: float
    most_blocks: int


MAIN_MEMORY = PoolShare(0.5, 1024)
#: Nothing else needs a GPU's memory once what computing takes is set aside.
GPU_MEMORY = PoolShare(0.9, 32768)


def pool_blocks(
    asked: int | None,
    bytes_per_block: int,
    available_bytes: int,
    sharers: int,
    default: PoolShare = MAIN_MEMORY,
) -> int:
    """Blocks of the pool: ``asked``, or as many as ``default`` allows. ``sharers`` replicas have equal parts
    of what is available. Raises MemoryShort with both numbers."""
    part = max(0, available_bytes // sharers)
    fits = part // bytes_per_block
    if asked is None:
        asked = max(1, min(default.most_blocks, int(fits * default.share)))
    if not 1 <= asked <= fits:
        raise MemoryShort(
            f"{asked} KV blocks need {asked * bytes_per_block:,} bytes; this replica's part of the available "
            f"memory is {part:,} bytes, which holds {fits} blocks"
        )
    return asked


def available_bytes() -> int:
    """Main memory that can be had without swapping, within the limit of this container if it has one."""
    return min(_machine_bytes(), _container_bytes())


def _machine_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _container_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What the container's cgroup (version 2 or 1) leaves, file cache that can go included; without a limit,
    more than any machine has."""
    for limit, used, reclaimable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit_bytes = int((root / limit).read_text())
            used_bytes = int((root / used).read_text())
            statistics = (root / limit).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            continue  # no such cgroup, or "max"
        cache = sum(int(line.split()[1]) for line in statistics if line.split()[0] == reclaimable)
        return max(0, limit_bytes - used_bytes + cache)
    return 1 << 62
