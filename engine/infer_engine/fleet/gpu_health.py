"""Whether the GPUs under the replicas are to be trusted: what NVML tells of them, and what follows.

A GPU with uncorrectable memory errors, or after a critical Xid of the hardware, computes nothing that may be
believed: its replicas are fenced. One that is too hot or slowed down by its hardware is bad while that lasts:
its replicas serve on, are chosen last, and are not started on it again by themselves.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infer_engine.fleet.feed import Feed
from infer_engine.fleet.lifecycle import Lifecycle
from infer_engine.protocol import GpuHealth
from infer_engine.replica.handle import ReplicaHandle

log = logging.getLogger(__name__)

#: How often the GPUs are asked.
PERIOD_S = 5.0
#: Degrees below the temperature at which the GPU slows itself down.
MARGIN_C = 2
#: Xids that a faulty program causes; the GPU is none the worse for them.
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})
#: Most Xids that one round takes from NVML.
MOST_EVENTS = 64
#: Xids of one GPU that are told.
XIDS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment. None is unknown: this GPU or driver does not tell."""

    uuid: str
    uncorrectable_errors: int | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    #: Why its clocks are held down, of the reasons that mean trouble.
    slowed_by: tuple[str, ...] = ()
    #: Critical Xids since the last reading.
    xids: tuple[int, ...] = ()
    #: It cannot be reached any more.
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why it is bad; ``fatal`` when what it computes is not to be believed."""

    why: str
    fatal: bool


def judge(reading: Reading, errors_before: int | None) -> Verdict | None:
    """``errors_before`` is the count of uncorrectable errors when it was first looked at: those of before are
    not this server's."""
    fatal: list[str] = ["it is lost: the driver cannot reach it"] if reading.lost else []
    errors = reading.uncorrectable_errors
    if errors is not None and errors > (errors_before or 0):
        fatal.append(f"{errors - (errors_before or 0)} uncorrectable ECC errors")
    hardware = [xid for xid in reading.xids if xid not in PROGRAM_XIDS]
    if hardware:
        fatal.append(f"Xid {', '.join(map(str, sorted(set(hardware))))}")
    if fatal:
        return Verdict("; ".join(fatal), fatal=True)
    mild: list[str] = []
    hot, limit = reading.temperature_c, reading.slowdown_c
    if hot is not None and limit is not None and hot >= limit - MARGIN_C:
        mild.append(f"{hot} °C, it slows itself down at {limit} °C")
    if reading.slowed_by:
        mild.append(f"its clocks are held down: {', '.join(reading.slowed_by)}")
    return Verdict("; ".join(mild), fatal=False) if mild else None


def _told(reading: Reading, xids: list[int]) -> GpuHealth:
    return GpuHealth(
        uuid=reading.uuid,
        temperature_c=reading.temperature_c,
        slowdown_c=reading.slowdown_c,
        uncorrectable_errors=reading.uncorrectable_errors,
        slowed_by=list(reading.slowed_by),
        xids=xids,
        lost=reading.lost,
    )


class NvmlFailedError(Exception):
    """NVML did not answer; ``str()`` is its reason."""


class Nvml:
    """``pynvml`` as far as it is asked here; what a GPU does not support is unknown. ``library`` is that
    module, or what takes its place."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._events: dict[str, Any] = {}
        library.nvmlInit()

    def close(self) -> None:
        for event_set in self._events.values():
            self._ask(lambda event_set=event_set: self._nvml.nvmlEventSetFree(event_set))
        self._nvml.nvmlShutdown()

    def read(self, uuid: str) -> Reading:
        """NvmlFailedError when NVML does not say."""
        try:
            return self._read(uuid)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
                return Reading(uuid=uuid, lost=True)
            raise NvmlFailedError(f"{type(error).__name__}: {error}") from error

    def _read(self, uuid: str) -> Reading:
        nvml = self._nvml
        device = nvml.nvmlDeviceGetHandleByUUID(uuid)
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
        return Reading(
            uuid=uuid,
            uncorrectable_errors=self._ask(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            ),
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)),
            slowdown_c=self._ask(
                lambda: nvml.nvmlDeviceGetTemperatureThreshold(
                    device, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
                )
            ),
            slowed_by=self._slowed_by(reasons or 0),
            xids=self._xids(uuid, device),
        )

    def _slowed_by(self, reasons: int) -> tuple[str, ...]:
        """An idle GPU, a power cap or asked-for clocks are no trouble."""
        nvml = self._nvml
        trouble = (
            (nvml.nvmlClocksThrottleReasonHwThermalSlowdown, "too hot (hardware)"),
            (nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake (hardware)"),
            (nvml.nvmlClocksEventReasonSwThermalSlowdown, "too hot (driver)"),
        )
        return tuple(name for bit, name in trouble if reasons & bit)

    def _xids(self, uuid: str, device: Any) -> tuple[int, ...]:
        """Those since the last call. NVML tells them of from when it was first asked."""
        nvml = self._nvml
        if uuid not in self._events:
            event_set = self._ask(nvml.nvmlEventSetCreate)
            if event_set is None:
                return ()
            self._events[uuid] = event_set
            self._ask(
                lambda: nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, event_set)
            )
        xids: list[int] = []
        while len(xids) < MOST_EVENTS:
            event = self._ask(lambda: nvml.nvmlEventSetWait_v2(self._events[uuid], 0), timeout_is_none=True)
            if event is None:
                break
            xids.append(int(event.eventData))
        return tuple(xids)

    def _ask(self, question: Callable[[], Any], *, timeout_is_none: bool = False) -> Any:
        """None where this GPU or driver cannot tell."""
        nvml = self._nvml
        try:
            return question()
        except nvml.NVMLError as error:
            unknown = [nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND]
            if timeout_is_none:
                unknown.append(nvml.NVML_ERROR_TIMEOUT)
            if error.value not in unknown:
                raise
            return None


def open_nvml() -> Nvml | None:
    """None where there is no NVIDIA driver."""
    import pynvml

    try:
        return Nvml(pynvml)
    except pynvml.NVMLError as error:
        log.warning("the health of GPUs is not watched: %s", error)
        return None


@dataclass(slots=True)
class GpuWatch:
    """Judges the GPUs that replicas have told to run on. ``open_`` is called once the first has."""

    handles: Mapping[str, ReplicaHandle]
    lifecycles: Mapping[str, Lifecycle]
    feed: Feed
    open_: Callable[[], Nvml | None] = open_nvml
    _nvml: Nvml | None = None
    _opened: bool = False
    #: Uncorrectable errors of each GPU when it was first looked at.
    _errors: dict[str, int] = field(default_factory=dict[str, int])
    #: The latest Xids of each.
    _xids: dict[str, deque[int]] = field(default_factory=dict[str, deque[int]])

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await asyncio.sleep(PERIOD_S)
                here = [each for each in self.handles.values() if each.joined is None]
                uuids = {each.info.gpu_uuid for each in here if each.info is not None}
                uuids.discard(None)
                if uuids:
                    readings = await asyncio.to_thread(self.read, [uuid for uuid in uuids if uuid])
                    for reading in readings:
                        self.take(reading)
        finally:
            if self._nvml is not None:
                self._nvml.close()

    def read(self, uuids: Iterable[str]) -> list[Reading]:
        """In a thread: a driver in trouble takes its time to answer."""
        if not self._opened:
            self._opened, self._nvml = True, self.open_()
        readings: list[Reading] = []
        if self._nvml is None:
            return []
        for uuid in uuids:
            try:
                readings.append(self._nvml.read(uuid))
            except NvmlFailedError as failed:
                log.warning("GPU %s: %s", uuid, failed)
        return readings

    def take(self, reading: Reading) -> None:
        """What the reading means for the replicas on that GPU."""
        xids = self._xids.setdefault(reading.uuid, deque(maxlen=XIDS_KEPT))
        xids.extend(reading.xids)
        told = _told(reading, list(xids))
        for handle in list(self.handles.values()):
            if handle.info is not None and handle.info.gpu_uuid == reading.uuid:
                handle.gpu = told
        if reading.uncorrectable_errors is not None:
            self._errors.setdefault(reading.uuid, reading.uncorrectable_errors)
        verdict = judge(reading, self._errors.get(reading.uuid))
        for handle in list(self.handles.values()):
            if handle.info is None or handle.info.gpu_uuid != reading.uuid or handle.fenced is not None:
                continue
            why = verdict.why if verdict is not None else None
            if why != handle.bad:
                handle.bad = why
                self.feed.event("replica", replica=handle.id, reason="bad" if why else "ok", message=why)
            if verdict is not None and verdict.fatal:
                log.error("replica %s is fenced: its GPU %s: %s", handle.id, reading.uuid, verdict.why)
                self.lifecycles[handle.id].fence(f"its GPU is bad: {verdict.why}", actor="gpu-health")
