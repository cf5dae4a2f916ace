"""GPU health from pages written after the names that NVIDIA's DCGM exporter documents; it does not run
here."""

import asyncio

import pytest
from infer_console.connect import parse_url
from infer_console.sources.client import EngineClient
from infer_engine.foreign.dcgm import MOST_REMEMBERED, Gpu, GpuMemory, health, read_gpus, troubles
from infer_engine.foreign.not_understood import NotUnderstoodError
from infer_engine.foreign.page import Page
from infer_engine.protocol import Event, Replica
from support.foreign_server import foreign_server, page, vllm_pages

FIRST, SECOND = (f"GPU-{each * 4}0000-1111-2222-3333-444455556666" for each in "ab")


def gpus(*changes: tuple[str, str]) -> list[Gpu]:
    text = page("dcgm.metrics").decode()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return read_gpus(Page.read(text))


def reason(number: str, bits: int) -> tuple[str, str]:
    """The change that holds that GPU's clocks down."""
    lines = [
        line
        for line in page("dcgm.metrics").decode().splitlines()
        if line.startswith("DCGM_FI_DEV_CLOCKS_EVENT_REASONS{") and f'gpu="{number}"' in line
    ]
    return lines[0], lines[0].rsplit(" ", 1)[0] + f" {bits}"


def told(url: str) -> tuple[list[Replica], list[Event]]:
    async def look() -> tuple[list[Replica], list[Event]]:
        async with EngineClient(parse_url(url)) as client:
            return (await client.state()).replicas, (await client.events(100)).events

    return asyncio.run(look())


def test_what_each_field_means() -> None:
    first, second = gpus()
    assert (first.number, first.uuid, first.name) == ("0", FIRST, "NVIDIA H100 80GB HBM3")
    assert (first.temperature_c, first.power_w, first.utilisation) == (61, 412.5, 0.98)
    assert first.memory_used_bytes == 74000 * 1024 * 1024
    assert first.memory_total_bytes == 81559 * 1024 * 1024
    assert (first.xid, first.uncorrectable_errors, first.slowed_by) == (0, 0, ())  # a power cap is no trouble
    assert (second.xid, second.uncorrectable_errors, second.remapped_rows) == (31, 2, 1)


@pytest.mark.parametrize("value", ["1e308", "9" * 400, "-1"])
def test_numbers_that_no_gpu_has_are_unknown(value: str) -> None:
    names = ("GPU_TEMP", "POWER_USAGE", "FB_USED", "FB_FREE", "XID_ERRORS", "ECC_DBE_VOL_TOTAL")
    told = "".join(f'DCGM_FI_DEV_{name}{{gpu="0",UUID="GPU-x"}} {value}\n' for name in (*names, "X"))
    (gpu,) = read_gpus(Page.read(told + 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-x"} 5\n'))
    assert gpu == Gpu(number="0", uuid="GPU-x", name="", utilisation=0.05)


def test_gpus_that_never_come_again_are_forgotten() -> None:
    memory = GpuMemory()
    for number in range(2 * MOST_REMEMBERED):
        memory.take([Gpu(number="0", uuid=f"GPU-{number}", name="")])
    assert memory.remembered <= MOST_REMEMBERED + 1


def test_fields_that_are_not_exported_are_unknown_and_not_zero() -> None:
    (gpu,) = read_gpus(Page.read('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-x"} 40\n'))
    assert (gpu.power_w, gpu.memory_used_bytes, gpu.uncorrectable_errors, gpu.xid) == (None,) * 4
    together = health([gpu], GpuMemory())
    assert together is not None
    assert (together.power_w, together.utilisation, together.uncorrectable_errors) == (None, None, None)
    with pytest.raises(NotUnderstoodError, match="no name begins with DCGM_FI_"):
        read_gpus(Page.read("go_goroutines 7\n"))


def test_two_gpus_of_one_server_together() -> None:
    together = health(gpus(), GpuMemory())
    assert together is not None
    assert (together.uuid, together.temperature_c) == ("2 GPUs", 67)
    assert (together.power_w, together.utilisation) == (810.75, pytest.approx(0.94))
    assert (together.uncorrectable_errors, together.xids) == (2, [31])


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        (reason("1", 0x44), "GPU 1: its clocks are held down: too hot (hardware)"),
        (reason("0", 0x80), "GPU 0: its clocks are held down: power brake (hardware)"),
        (('Hostname="gpu-a"} 31\n', 'Hostname="gpu-a"} 79\n'), "GPU 1: Xid 79"),
        (('Hostname="gpu-a"} 31\n', 'Hostname="gpu-a"} 13\n'), None),  # a program's fault
        (('Hostname="gpu-a"} 2\n', 'Hostname="gpu-a"} 5\n'), "GPU 1: 3 uncorrectable ECC errors"),
    ],
)
def test_trouble_is_what_came_since_it_was_first_looked_at(
    change: tuple[str, str], trouble: str | None
) -> None:
    memory = GpuMemory()
    memory.take(gpus())
    assert troubles(gpus(), memory) is None  # errors of before are shown, and nobody's trouble now
    memory.take(gpus(change))
    assert troubles(gpus(change), memory) == trouble


def test_heat_is_seen_in_the_counter_of_violations_too() -> None:
    def at(count: int) -> list[Gpu]:
        return read_gpus(Page.read(f'DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="0",UUID="x"}} {count}\n'))

    memory = GpuMemory()
    for count, trouble in ((7, None), (9, "its clocks are held down: heat"), (9, None)):
        memory.take(at(count))
        assert troubles(at(count), memory) == trouble


def test_all_gpus_of_a_machine_are_the_only_servers_there() -> None:
    with (
        foreign_server(vllm_pages("busy")) as server,
        foreign_server({"/metrics": page("dcgm.metrics")}) as exporter,
    ):
        (row,), events = told(f"vllm+{server.url},dcgm+{exporter.url}")
    assert (row.id, row.running, row.device) == ("e0", 4, "2 × NVIDIA H100 80GB HBM3")
    assert row.gpu is not None
    assert (row.gpu.temperature_c, row.gpu_trouble) == (67, None)
    assert not events
    assert set(exporter.asked) == {"GET /metrics"}


def test_gpus_of_several_servers_are_whose_they_are_said_to_be() -> None:
    with (
        foreign_server(vllm_pages("busy")) as one,
        foreign_server(vllm_pages("busy")) as other,
        foreign_server({"/metrics": page("dcgm.metrics")}) as exporter,
    ):
        rows, events = told(f"vllm+{one.url},vllm+{other.url},dcgm+{exporter.url}")
        assert [row.gpu for row in rows] == [None, None]
        (event,) = events
        assert (event.reason, event.replica) == ("gpus", None)
        assert "2 GPUs, and nobody says whose of 127.0.0.1:" in (event.message or "")
        rows, events = told(f"vllm+{one.url}#gpu=1,vllm+{other.url}#gpu={FIRST},dcgm+{exporter.url}")
        assert [row.gpu.uuid for row in rows if row.gpu] == [SECOND, FIRST]
        assert not events
        rows, events = told(f"vllm+{one.url}#gpu=0,vllm+{other.url},dcgm+{exporter.url}")
        assert [row.gpu.uuid if row.gpu else None for row in rows] == [FIRST, None]
        assert "1 GPU, and nobody says whose of" in (events[0].message or "")


def test_an_exporter_that_fails_takes_the_health_away_and_nothing_else() -> None:
    with foreign_server(vllm_pages("busy")) as server, foreign_server({}) as exporter:
        (row,), (event,) = told(f"vllm+{server.url},dcgm+{exporter.url}")
        assert (row.state, row.running, row.gpu) == ("ready", 4, None)
        assert (event.message or "").endswith("/metrics answers 404")
        exporter.pages = vllm_pages("busy")
        (row,), (event,) = told(f"vllm+{server.url},dcgm+{exporter.url}")
        assert "does not look like the DCGM exporter" in (event.message or "")
