"""Screens that a server which is only watched cannot fill say what does."""

from collections.abc import Callable

import pytest
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.replica_screen import replica_screen
from infer_console.view.requests_screen import requests_screen
from infer_console.view.row import Row, plain
from infer_console.view.streams_screen import streams_screen
from infer_console.view.traffic_screen import traffic_screen
from infer_engine.protocol import Fleet, GpuHealth, Kv, Replica, Totals

COMMAND = "infer-console serve --upstream vllm+http://gpu-a:8000"
PICTURE = Picture(
    at=0.0,
    link=Link(url="vllm+http://gpu-a:8000", state="live", age_s=0.1),
    read_only=True,
    role="viewer",
    capabilities=frozenset({"watch", "watched", "estimates"}),
    fleet=Fleet(name="gpu-a:8000", model="m"),
    totals=Totals(replicas=1, ready=1, running=4, waiting=2),
    replicas={
        "e0": ReplicaPicture(
            status=Replica(
                id="e0",
                state="ready",
                running=4,
                waiting=2,
                kv=Kv(block_size=16, total=100, used=40),
                foreign="vLLM",
                watched_url="vllm+http://gpu-a:8000",
                gpu=GpuHealth(uuid="u", temperature_c=61, power_w=412.4, utilisation=0.98),
                device="NVIDIA H100",
            )
        )
    },
    listing_message="vLLM does not tell its requests",
)

Draw = Callable[[Size], list[Row]]
SCREENS: dict[str, Draw] = {
    "replica": lambda size: replica_screen(PICTURE, Look(replica="e0"), size, 0.0),
    "requests": lambda size: requests_screen(PICTURE, Look(), size, 0.0),
    "streams": lambda size: streams_screen(PICTURE, Look(), [], size, 0.0),
    "traffic": lambda size: traffic_screen(PICTURE, Look(), size, 0.0),
    "doctor": lambda size: doctor_screen(PICTURE, Look(), size, 0.0),
}


@pytest.mark.parametrize("size", [Size(200, 50), Size(120, 36), Size(80, 24)])
@pytest.mark.parametrize("name", list(SCREENS))
def test_the_command_is_on_the_screen(name: str, size: Size) -> None:
    rows = SCREENS[name](size)
    assert len(rows) == size.height
    assert all(sum(span.cells for span in row) == size.width for row in rows)
    text = "\n".join(plain(row) for row in rows)
    assert COMMAND in text
    assert "I: inject" not in text
    assert "no list" not in text


def test_gpus_have_a_column_where_they_are_told() -> None:
    text = "\n".join(plain(row) for row in fleet_screen(PICTURE, Look(), Size(160, 40), 0.0))
    assert "61° 98%" in text
    device = "\n".join(plain(row) for row in SCREENS["replica"](Size(160, 40)))
    assert "61°C  412W" in device
