"""The health of GPUs as NVML tells it. No GPU here: what NVML answers is played by an object that has the
functions and constants of ``pynvml`` itself, under their own names."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from infer_engine.fleet.gpu_health import GpuWatch, Nvml, NvmlFailedError, Reading, judge
from msgspec import structs
from support.fleets import running_fleet, until

UUID = "GPU-5c8a1f0e"


class PlayedNvml:
    """A driver with one GPU. Every function that is called must exist in ``pynvml``."""

    NVMLError = pynvml.NVMLError

    def __init__(self) -> None:
        self.uncorrectable = 0
        self.celsius = 41
        self.reasons = 0
        self.xids: list[int] = []
        self.unsupported: set[str] = set()
        self.lost = False
        self.closed = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or not callable(getattr(pynvml, name)):
            return getattr(pynvml, name)

        def call(*arguments: Any) -> Any:
            if self.lost and name not in ("nvmlInit", "nvmlShutdown"):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
            if name in self.unsupported:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return getattr(self, f"_{name}")(*arguments)

        return call

    def _nvmlInit(self) -> None: ...

    def _nvmlShutdown(self) -> None:
        self.closed += 1

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "device"

    def _nvmlDeviceGetTotalEccErrors(self, device: str, kind: int, since: int) -> int:
        assert (kind, since) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return self.uncorrectable

    def _nvmlDeviceGetTemperature(self, device: str, sensor: int) -> int:
        return self.celsius

    def _nvmlDeviceGetTemperatureThreshold(self, device: str, which: int) -> int:
        assert which == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        return 90

    def _nvmlDeviceGetCurrentClocksEventReasons(self, device: str) -> int:
        return self.reasons

    def _nvmlEventSetCreate(self) -> str:
        return "events"

    def _nvmlEventSetFree(self, events: str) -> None: ...

    def _nvmlDeviceRegisterEvents(self, device: str, kinds: int, events: str) -> None:
        assert kinds == pynvml.nvmlEventTypeXidCriticalError

    def _nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> SimpleNamespace:
        assert timeout_ms == 0
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(eventData=self.xids.pop(0))


def test_a_healthy_gpu_is_read_whole() -> None:
    played = PlayedNvml()
    nvml = Nvml(played)
    assert nvml.read(UUID) == Reading(UUID, uncorrectable_errors=0, temperature_c=41, slowdown_c=90)
    assert judge(nvml.read(UUID), 0) is None
    nvml.close()
    assert played.closed == 1


def test_what_a_gpu_cannot_tell_is_unknown_and_no_reason() -> None:
    played = PlayedNvml()
    played.unsupported = {
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlEventSetCreate",
    }
    reading = Nvml(played).read(UUID)
    assert reading == Reading(UUID, temperature_c=41)
    assert judge(reading, None) is None
    with pytest.raises(NvmlFailedError):
        Nvml(played).read("GPU-other")


@pytest.mark.parametrize(
    ("trouble", "why", "fatal"),
    [
        ({"uncorrectable": 2}, "2 uncorrectable ECC errors", True),
        ({"xids": [31, 79, 79]}, "Xid 79", True),
        ({"lost": True}, "it is lost: the driver cannot reach it", True),
        ({"celsius": 88}, "88 °C, it slows itself down at 90 °C", False),
        (
            {"reasons": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown},
            "its clocks are held down: too hot (hardware)",
            False,
        ),
    ],
)
def test_what_makes_it_bad(trouble: dict[str, Any], why: str, fatal: bool) -> None:
    played = PlayedNvml()
    for name, value in trouble.items():
        setattr(played, name, value)
    verdict = judge(Nvml(played).read(UUID), 0)
    assert verdict is not None
    assert (verdict.why, verdict.fatal) == (why, fatal)


@pytest.mark.parametrize(
    "harmless",
    [
        {"xids": [13, 31, 43, 45]},
        {"reasons": pynvml.nvmlClocksThrottleReasonGpuIdle | pynvml.nvmlClocksThrottleReasonSwPowerCap},
    ],
)
def test_what_does_not(harmless: dict[str, Any]) -> None:
    played = PlayedNvml()
    for name, value in harmless.items():
        setattr(played, name, value)
    assert judge(Nvml(played).read(UUID), 0) is None


async def test_a_hot_gpu_is_bad_for_as_long_and_a_broken_one_fences_its_replicas() -> None:
    async with running_fleet(replicas=2) as bench:
        fleet, played = bench.fleet, PlayedNvml()
        played.uncorrectable = 3  # before anybody looked
        handle = fleet.members.handles["r0"]
        assert handle.info is not None
        handle.info = structs.replace(handle.info, gpu_uuid=UUID, device="cuda")
        watch = GpuWatch(fleet.members.handles, fleet.members.lifecycles, fleet.feed, lambda: Nvml(played))

        def look() -> None:
            for reading in watch.read([UUID]):
                watch.take(reading)

        look()
        assert fleet.replica("r0").health == "idle", "old errors are not this server's"
        played.celsius = 95
        look()
        assert (fleet.replica("r0").health, fleet.replica("r1").health) == ("bad", "idle")
        told = fleet.replica("r0")
        assert told.gpu_trouble == "95 °C, it slows itself down at 90 °C"
        assert told.gpu is not None
        assert (told.gpu.temperature_c, told.gpu.uncorrectable_errors, told.gpu.xids) == (95, 3, [])
        assert fleet.replica("r1").gpu is None
        assert {bench.submit().replica for _ in range(3)} == {"r1"}, "chosen last"
        played.celsius = 60
        look()
        assert fleet.replica("r0").health == "idle"
        played.uncorrectable = 4
        look()
        assert fleet.replica("r0").state == "fenced"
        await until(lambda: fleet.members.lifecycles["r0"].ended)
        assert fleet.replica("r0").spec is not None
        events = [event for event in bench.events("replica") if event.replica == "r0"]
        assert [event.reason for event in events][-4:] == ["bad", "ok", "bad", "fenced"]
        assert events[-1].actor == "gpu-health"
        assert "1 uncorrectable ECC errors" in str(events[-1].message)
        assert len(bench.launcher.lives["r0"]) == 1


def test_where_there_is_no_driver_nothing_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    from infer_engine.fleet import gpu_health

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "nvmlInit", refuse)
        assert gpu_health.open_nvml() is None
    assert "the health of GPUs is not watched" in caplog.text
