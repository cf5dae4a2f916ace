"""Screens that a server which is only watched cannot fill say what does."""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from infer_console.state.picture import Link, Picture, ReplicaPicture, TimelinePicture
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.help import help_rows
from infer_console.view.look import Look, Size
from infer_console.view.replica_screen import replica_screen
from infer_console.view.requests_screen import requests_screen
from infer_console.view.row import Row, plain
from infer_console.view.streams_screen import streams_screen
from infer_console.view.timeline import timeline_section
from infer_console.view.traffic_screen import traffic_screen
from infer_engine.foreign.ours import OUR_GATEWAY
from infer_engine.protocol import Fleet, GpuHealth, Kv, Replica, RequestRow, Totals

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


def texts(draw: Draw, size: Size) -> list[str]:
    return [plain(row) for row in draw(size)]


def with_status(**changes: Any) -> Picture:
    replica = msgspec.structs.replace(PICTURE.replicas["e0"].status, **changes)
    return dataclasses.replace(PICTURE, replicas={"e0": ReplicaPicture(status=replica)})


def test_what_is_not_told_is_no_zero() -> None:
    requests = texts(SCREENS["requests"], Size(120, 36))
    assert any("REQUESTS not told" in row for row in requests)
    assert not any("0 waiting" in row or "0 ended" in row for row in requests)
    fleet = [plain(row) for row in fleet_screen(PICTURE, Look(), Size(200, 60), 0.0)]
    assert any("tenants are not told" in row for row in fleet)
    assert not any("no tenant has anything" in row for row in fleet)


def test_tokens_are_not_told_once_and_their_key_is_not_offered() -> None:
    rows = texts(lambda size: streams_screen(PICTURE, Look(), ["task-1"], size, 0.0), Size(120, 36))
    assert any("STREAMS not told" in row for row in rows)
    assert not any("role viewer" in row for row in rows)
    assert sum("tells no tokens" in row for row in rows) == 1
    assert "c text" not in rows[-1]


@pytest.mark.parametrize("size", [(120, 60), (80, 24), (40, 12)])
def test_the_help_says_that_acting_keys_are_off(size: tuple[int, int]) -> None:
    rows = [plain(row) for row in help_rows("fleet", *size, why_not="this server can only be watched")]
    assert any("capitals are off: this" in row for row in rows)
    assert not any("capitals act" in row for row in rows)
    if size[0] >= 80:
        assert any("capitals are off: this server can only be watched" in row for row in rows)
    if size[1] >= 60:
        assert any(" D " in row and "off: take a replica out" in row for row in rows)


def test_kv_of_one_token_blocks_is_told_in_tokens() -> None:
    kv = Kv(block_size=1, total=8192, used=804, free=7388)
    picture = with_status(foreign="llama.cpp", kv=kv)
    rows = [plain(row) for row in replica_screen(picture, Look(replica="e0"), Size(120, 36), 0.0)]
    assert any("of 8,192 tok" in row for row in rows)
    assert any("KV tok" in row for row in rows)
    assert not any("blk" in row or "BLOCKS  " in row for row in rows)
    listed = [plain(row) for row in requests_screen(picture, Look(), Size(120, 36), 0.0)]
    assert any("KV tok" in row for row in listed)
    assert any("REQUESTS 0 running; those that wait or ended are not told" in row for row in listed)
    assert not any("0 waiting" in row or "none ended" in row for row in listed)


def test_our_own_gateway_is_no_upstream() -> None:
    picture = with_status(foreign=OUR_GATEWAY)
    text = "\n".join(plain(row) for row in requests_screen(picture, Look(), Size(120, 36), 0.0))
    assert "its own control API tells it" in text
    assert "infer-console --connect unix:///PATH" in text
    assert "--upstream" not in text


WHY = (
    "This server can only be watched: our gateway in front of it can do that: "
    "infer-console serve --upstream auto+http://127.0.0.1:8000"
)


@pytest.mark.parametrize("width", [80, 120])
def test_why_there_is_no_timeline_is_told_whole_and_tokens_are_no_blocks(width: int) -> None:
    row = RequestRow(
        id="task-1", tenant="–", tier="interactive", replica="e0", state="running", prompt_tokens=9, age_s=1.0
    )
    status = with_status(kv=Kv(block_size=1, total=4_096, used=143)).replicas["e0"].status
    replica = ReplicaPicture(
        status=status, rows={"task-1": msgspec.structs.replace(row, kv_blocks=143)}, order=("task-1",)
    )
    told = TimelinePicture(request="task-1", message=WHY)
    picture = dataclasses.replace(PICTURE, replicas={"e0": replica}, timeline=told)
    text = " ".join(
        " ".join(plain(each) for each in timeline_section(picture, Look(), "task-1", width, 20)).split()
    )
    assert WHY in text
    assert "KV tokens 143" in text
    assert "blocks" not in text


def test_what_a_lost_server_said_last_is_said_to_be_old() -> None:
    lost = dataclasses.replace(PICTURE, link=Link(url="x", state="lost", age_s=40.0, message="refused"))
    text = "\n".join(plain(row) for row in fleet_screen(lost, Look(), Size(120, 36), 0.0))
    assert "was 1/1 ready" in text
    assert "as it was 40s ago, before the connection was lost" in text
    assert "as it was" not in "\n".join(plain(r) for r in fleet_screen(PICTURE, Look(), Size(120, 36), 0.0))
