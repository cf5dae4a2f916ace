"""GPU health from the page of NVIDIA's DCGM exporter, by the names of its fields."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.foreign.page import Labels, Page
from infer_engine.foreign.reading import whole
from infer_engine.protocol import GpuHealth

PREFIX = "DCGM_FI_"
#: Of one exporter.
MAX_GPUS = 64
MIB = 1024 * 1024
#: Of one GPU.
MOST_WATTS = 1e6
#: GPUs that are remembered though they are told no more.
MOST_REMEMBERED = 4 * MAX_GPUS
#: Xids that a faulty program causes; the GPU is none the worse for them.
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})
#: Bits of the reasons why clocks are held down, of those that mean trouble.
SLOWED: tuple[tuple[int, str], ...] = (
    (0x08, "slowdown (hardware)"),
    (0x20, "too hot (driver)"),
    (0x40, "too hot (hardware)"),
    (0x80, "power brake (hardware)"),
)
REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment, as its exporter tells; None where it does not. Text is the exporter's."""

    number: str
    uuid: str
    name: str
    #: The machine as the exporter calls it.
    hostname: str = ""
    temperature_c: int | None = None
    power_w: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilisation: float | None = None
    #: The last one ever, 0 for none: when it was is not told.
    xid: int | None = None
    uncorrectable_errors: int | None = None
    remapped_rows: int | None = None
    remapping_failed: bool = False
    slowed_by: tuple[str, ...] = ()
    #: Microseconds, or whatever the exporter counts in, for which heat held its clocks down.
    thermal_violation: float | None = None


def read_gpus(page: Page) -> list[Gpu]:
    """Raise NotUnderstoodError where this is no page of that exporter."""
    if not page.has(PREFIX):
        raise NotUnderstoodError(f"this does not look like the DCGM exporter: no name begins with {PREFIX}")
    known: dict[tuple[str, str], Labels] = {}
    own: dict[tuple[str, str], Page] = {}
    for name, samples in page.samples.items():
        if name.startswith(PREFIX):
            for labels, value in samples:
                key = labels.get("gpu", ""), labels.get("UUID", "")
                if key not in known:
                    known[key], own[key] = labels, Page({})
                own[key].samples.setdefault(name, []).append((labels, value))
    ordered = sorted(known, key=lambda key: (len(key[0]), key))
    return [_gpu(own[key], key, known[key]) for key in ordered[:MAX_GPUS]]


def _gpu(page: Page, key: tuple[str, str], labels: Labels) -> Gpu:
    """``page`` has its samples alone."""

    def value(*names: str) -> float | None:
        # Counters have no _total in their names there, and the parser adds what it misses. A GPU that is cut
        # up tells most fields for each of its parts again.
        both = [each for name in names for each in (name, f"{name}_total")]
        return page.value(both, lambda _: True, highest=True)

    used, free = value("DCGM_FI_DEV_FB_USED"), value("DCGM_FI_DEV_FB_FREE")
    busy, reasons = value("DCGM_FI_DEV_GPU_UTIL"), value(*REASONS)
    power = value("DCGM_FI_DEV_POWER_USAGE")
    bits = round(reasons) if reasons is not None and 0 <= reasons < 2**53 else 0
    return Gpu(
        number=key[0][:8],
        uuid=key[1][:64],
        name=labels.get("modelName", "")[:64],
        hostname=labels.get("Hostname", "")[:253],
        temperature_c=whole(value("DCGM_FI_DEV_GPU_TEMP")),
        power_w=power if power is not None and 0 <= power < MOST_WATTS else None,
        memory_used_bytes=None if used is None else whole(used * MIB),
        memory_total_bytes=None if used is None or free is None else whole((used + free) * MIB),
        utilisation=None if busy is None else min(1.0, max(0.0, busy / 100)),
        xid=whole(value("DCGM_FI_DEV_XID_ERRORS")),
        uncorrectable_errors=whole(value("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")),
        remapped_rows=whole(value("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")),
        remapping_failed=bool(value("DCGM_FI_DEV_ROW_REMAP_FAILURE")),
        slowed_by=tuple(name for bit, name in SLOWED if bits & bit),
        thermal_violation=value("DCGM_FI_DEV_THERMAL_VIOLATION"),
    )


@dataclass(slots=True)
class GpuMemory:
    """What was there when each GPU was first looked at: errors of before are not of the time that is
    watched."""

    _first: dict[str, Gpu] = field(default_factory=dict[str, Gpu])
    _last: dict[str, Gpu] = field(default_factory=dict[str, Gpu])
    _new_xids: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _heated: set[str] = field(default_factory=set[str])

    @property
    def remembered(self) -> int:
        return len(self._first)

    def take(self, gpus: Sequence[Gpu]) -> None:
        if len(self._first) > MOST_REMEMBERED:
            self._forget_but({gpu.uuid for gpu in gpus})
        for gpu in gpus:
            self._first.setdefault(gpu.uuid, gpu)
            before = self._last.get(gpu.uuid)
            if before is not None and gpu.xid and gpu.xid != before.xid:
                kept = self._new_xids.setdefault(gpu.uuid, [])
                kept.append(gpu.xid)
                del kept[:-8]
            self._heated.discard(gpu.uuid)
            if before is not None and _grew(before.thermal_violation, gpu.thermal_violation):
                self._heated.add(gpu.uuid)
            self._last[gpu.uuid] = gpu

    def _forget_but(self, present: set[str]) -> None:
        for known in (self._first, self._last, self._new_xids):
            for gone in known.keys() - present:
                del known[gone]
        self._heated &= present

    def slowed_by(self, gpu: Gpu) -> list[str]:
        return [*gpu.slowed_by, *(["heat"] if gpu.uuid in self._heated and not gpu.slowed_by else [])]

    def trouble(self, gpu: Gpu) -> str | None:
        """Why it is not to be trusted, or slow; None where all is well."""
        first = self._first.get(gpu.uuid, gpu)
        found: list[str] = []
        errors = (gpu.uncorrectable_errors or 0) - (first.uncorrectable_errors or 0)
        if errors > 0 and first.uncorrectable_errors is not None:
            found.append(f"{errors} uncorrectable ECC errors")
        rows = (gpu.remapped_rows or 0) - (first.remapped_rows or 0)
        if rows > 0 and first.remapped_rows is not None:
            found.append(f"{rows} rows remapped for uncorrectable errors")
        if gpu.remapping_failed:
            found.append("row remapping failed")
        xids = [xid for xid in self._new_xids.get(gpu.uuid, []) if xid not in PROGRAM_XIDS]
        if xids:
            found.append(f"Xid {', '.join(map(str, sorted(set(xids))))}")
        if slowed := self.slowed_by(gpu):
            found.append(f"its clocks are held down: {', '.join(slowed)}")
        return "; ".join(found) or None


def health(gpus: Sequence[Gpu], memory: GpuMemory) -> GpuHealth | None:
    """Of the GPUs under one server together: the hottest one's temperature, sums of the others, the mean of
    how busy they are. None where there are none."""
    if not gpus:
        return None
    totals = [gpu.memory_total_bytes for gpu in gpus]
    powers = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    busy = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    return GpuHealth(
        uuid=gpus[0].uuid if len(gpus) == 1 else f"{len(gpus)} GPUs",
        temperature_c=max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None),
        uncorrectable_errors=_sum([gpu.uncorrectable_errors for gpu in gpus]),
        slowed_by=list(dict.fromkeys(why for gpu in gpus for why in memory.slowed_by(gpu))),
        xids=[gpu.xid for gpu in gpus if gpu.xid][-8:],
        power_w=sum(powers) if powers else None,
        memory_used_bytes=_sum([gpu.memory_used_bytes for gpu in gpus]),
        memory_total_bytes=None if None in totals else _sum(totals),
        utilisation=sum(busy) / len(busy) if busy else None,
    )


def troubles(gpus: Sequence[Gpu], memory: GpuMemory) -> str | None:
    """Of the GPUs under one server together."""
    each = [(gpu, memory.trouble(gpu)) for gpu in gpus]
    told = [why if len(gpus) == 1 else f"GPU {gpu.number}: {why}" for gpu, why in each if why is not None]
    return "; ".join(told)[:200] or None


def device_words(gpus: Sequence[Gpu]) -> str | None:
    names = sorted({gpu.name for gpu in gpus if gpu.name})
    if not gpus or not names:
        return None
    return f"{len(gpus)} × {', '.join(names)}"[:80] if len(gpus) > 1 else names[0]


def _grew(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now > before


def _sum(values: Sequence[int | None]) -> int | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None
