"""The Replica screen's own lines: the step beside its floor, the device, when the head fits."""

import dataclasses

import msgspec
import pytest
from infer_console.state.picture import ReplicaPicture
from infer_console.view.look import Look, Size
from infer_console.view.pool import device_row, step_row
from infer_console.view.queue import fits_when
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import plain
from infer_engine.protocol import GpuHealth
from support import pictures


def r2(**status: object) -> ReplicaPicture:
    replica = pictures.incident().replicas["r2"]
    return dataclasses.replace(replica, status=msgspec.structs.replace(replica.status, **status))


def test_the_step_stands_beside_the_planners_floor() -> None:
    replica = r2()
    row = plain(step_row(replica, 120))
    assert "STEP 96ms = decode 8 + chunk 504 of budget 512 (7f3a91, ~7.4s more)" in row
    kv = sum(row.computed_tokens for row in pictures.ROSTER) * 327_680 / (4 * 3.35e12) * 1000
    assert row.endswith(
        f"decode floor {140e9 / (4 * 3.35e12) * 1000 + kv:.1f}ms = weights 10.4 + KV {kv:.1f}"
    )


def test_without_a_bandwidth_the_floor_is_what_is_read_and_without_anything_nothing() -> None:
    assert "decode reads weights 140 GB + KV" in plain(step_row(r2(bandwidth_bytes_per_s=None), 120))
    assert "floor" not in plain(step_row(r2(weight_bytes=None), 120))
    unlisted = dataclasses.replace(r2(), rows={}, order=())
    assert "floor" not in plain(step_row(unlisted, 120))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "GPU ok 71°C  ecc 0  xid none"),
        ({"gpu": None}, "GPU health not told (no NVML)"),
        ({"gpu": None, "simulated": True}, "GPU none: simulated"),
        ({"gpu": GpuHealth(uuid="x", temperature_c=None)}, "GPU ok –°C  ecc –  xid none"),
        (
            {
                "gpu": GpuHealth(
                    uuid="x", temperature_c=88, slowdown_c=90, uncorrectable_errors=2, xids=[94]
                ),
                "gpu_trouble": "Xid 94",
            },
            "GPU BAD Xid 94  88°C  ecc 2  xid 94",
        ),
        ({"gpu": GpuHealth(uuid="x", slowed_by=["heat"], lost=True)}, "GPU LOST –°C"),
    ],
)
def test_the_device_says_how_it_is_or_that_nobody_tells(status: dict[str, object], words: str) -> None:
    assert words in plain(device_row(r2(**status), 120))


def test_when_the_head_fits_is_an_upper_bound() -> None:
    replica = r2()
    head = pictures.QUEUE[0]
    # 6,016 short: 7e0b12 ends first of those with a limit, after 110 tokens of 97 ms, and frees 6,362.
    assert fits_when(replica, head) == "fits when 7e0b12 ends, ≤11s"
    assert fits_when(replica, pictures.QUEUE[2]) == "", "behind another: nothing of its own to wait for"
    unknown = {
        id: msgspec.structs.replace(row, last_itl_s=None) if row.state == "running" else row
        for id, row in replica.rows.items()
    }
    assert fits_when(dataclasses.replace(replica, rows=unknown), head) == ""


def test_both_marks_on_the_gauge_and_their_numbers() -> None:
    shown = [
        plain(row)
        for row in replica_screen(pictures.incident(), Look(replica="r2"), Size(120, 36), pictures.NOW)
    ]
    gauge = next(row for row in shown if row.startswith(" KV "))
    assert gauge.index("╎") < gauge.index("┃")
    assert any("╎ batch ≤ 19,836  ┃ admit ≤ 27,465" in row for row in shown)
    strip = next(row for row in shown if row.startswith(" RUN ") and "TOK/S" in row)
    assert strip.split()[-1] == "760"


def test_a_wide_screen_has_requests_left_and_blocks_right() -> None:
    rows = replica_screen(pictures.incident(), Look(replica="r2"), Size(300, 80), pictures.NOW)
    shown = [plain(row) for row in rows]
    assert any("ROSTER 9" in row and "BLOCKS" in row for row in shown)
    assert any("LAST" in row for row in shown)
    assert all(sum(span.cells for span in row) == 300 for row in rows)
