"""The machine that figures were taken on, without anything that tells whose it is."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

#: Instruction sets that decide how fast a CPU multiplies.
_FLAGS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
)
_PACKAGES = ("infer-console", "torch", "numpy", "numba", "textual")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """CPU, cores, instruction sets, memory, and the versions of what computes."""
    cpu = _cpuinfo()
    return {
        "cpu": cpu.get("model name") or platform.machine(),
        "cores": cores(),
        "flags": [flag for flag in _FLAGS if flag in cpu.get("flags", cpu.get("Features", "")).split()],
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


def file_name(machine: dict[str, Any]) -> str:
    """A name for results of machines like this one."""
    slug = re.sub(r"[^a-z0-9]+", "-", str(machine["cpu"]).lower()).strip("-")
    wide = "-avx512" if "avx512f" in machine["flags"] else ""
    return f"{slug}{wide}-{machine['cores']}-cores.json"


def _cpuinfo() -> dict[str, str]:
    """Of the first CPU that Linux lists; empty elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _memory_gib() -> float | None:
    try:
        size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    return round(size_bytes / 2**30, 1)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
