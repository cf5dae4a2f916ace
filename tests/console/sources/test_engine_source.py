"""The watch source against a server that misbehaves on purpose: gaps, garbage, newer messages, silence."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from infer_console.collector import Collector
from infer_console.connect import parse_url
from infer_console.sources import client as client_module
from infer_console.sources.client import EngineClient
from infer_console.sources.engine import describe
from infer_console.sources.failures import RefusedError, UnreachableError
from infer_console.state.picture import Picture
from infer_engine import idle_connections
from infer_engine.protocol import (
    FleetDelta,
    Heartbeat,
    Problem,
    Replica,
    ReplicaFrame,
    SnapshotBegin,
    SnapshotEnd,
    Totals,
)
from support.eventually import eventually
from support.scripted_control import CLOSE, HELLO, ScriptedControl, scripted_control, sse
from support.server import short_directory

BEGIN = SnapshotBegin(server_version="9.9", capabilities=["watch"])
FLEET = FleetDelta(fleet=HELLO.fleet, totals=Totals(replicas=1, ready=1))


def frame(step: int) -> ReplicaFrame:
    return ReplicaFrame(replica="r0", step=step, at=0.0, status=Replica(id="r0", state="ready"))


def snapshot(step: int) -> str:
    return sse(BEGIN, FLEET, frame(step), SnapshotEnd())


@pytest.fixture
def directory() -> Generator[Path]:
    with short_directory() as path:
        yield path


@contextmanager
def collecting(directory: Path, *scripts: str) -> Generator[tuple[Collector, ScriptedControl]]:
    path = directory / "c.sock"
    collector = Collector(parse_url(f"unix://{path}"))
    with scripted_control(path, scripts) as control:
        collector.start()
        try:
            yield collector, control
        finally:
            assert collector.stop(60)


def at_step(collector: Collector, step: int) -> Picture:
    def there() -> Picture | None:
        picture = collector.picture
        shown = picture.replicas.get("r0")
        return picture if shown is not None and shown.step == step else None

    return eventually(there)


def test_a_gap_opens_the_watch_anew(directory: Path) -> None:
    gap = sse(frame(2), first_prev=77, start=78)
    with collecting(directory, snapshot(1) + gap, snapshot(3)) as (collector, control):
        picture = at_step(collector, 3)
        assert picture.link.resyncs == 1
        assert picture.link.state == "live"
        assert sum("/watch" in path for path in control.paths) == 2


def test_messages_of_a_newer_server_are_passed_over_and_what_follows_is_shown(directory: Path) -> None:
    newer = 'data: {"epoch":"e1","seq":5,"prev":4,"at":0,"delta":{"type":"hologram","x":[1]},"more":true}\n\n'
    rest = sse(frame(2), first_prev=5, start=6)
    with collecting(directory, snapshot(1) + newer + rest) as (collector, _control):
        picture = at_step(collector, 2)
        assert picture.link.resyncs == 0
        assert "hologram" in picture.link.message


@pytest.mark.parametrize(
    "garbage",
    [
        "data: nonsense\n\n",
        'data: {"seq": 1}\n\n',
        "data: " + "[" * 100_000 + "\n\n",
        "data: " + "x" * (9 * 1024 * 1024) + "\n\n",
    ],
    ids=["not-json", "no-envelope", "nested-deep", "too-long"],
)
def test_garbage_ends_the_connection_and_not_the_console(directory: Path, garbage: str) -> None:
    with collecting(directory, snapshot(1) + garbage, snapshot(2)) as (collector, _control):
        picture = at_step(collector, 2)
        assert (picture.link.state, picture.link.reconnects) == ("live", 1)


def test_a_server_that_closes_the_stream_is_asked_again_and_the_picture_stays(directory: Path) -> None:
    with collecting(directory, snapshot(1) + CLOSE, CLOSE, snapshot(4)) as (collector, _control):
        at_step(collector, 1)
        eventually(lambda: collector.picture.link.state == "lost")
        assert collector.picture.replicas["r0"].step == 1
        assert "closed" in collector.picture.link.message
        assert at_step(collector, 4).link.reconnects == 1


def test_a_hello_that_is_not_the_protocol_is_a_state_and_not_an_end(directory: Path) -> None:
    path = directory / "c.sock"
    collector = Collector(parse_url(f"unix://{path}"))
    with scripted_control(path, [snapshot(1)]) as control:
        good, control.hello = control.hello, b"<html>"
        collector.start()
        try:
            eventually(lambda: collector.picture.link.message)
            assert collector.picture.link.state == "connecting"
            control.hello = good
            at_step(collector, 1)
        finally:
            assert collector.stop(60)


def test_the_filter_names_what_is_looked_at_and_nothing_else(directory: Path) -> None:
    both = [snapshot(1), sse(BEGIN, FLEET, frame(2), SnapshotEnd(), Heartbeat(at=0.0))]
    with collecting(directory, *both) as (collector, control):
        at_step(collector, 1)
        collector.set_interest(["r1", "r0", "r1"], ("roster",), 99.0)
        at_step(collector, 2)
        first, second = (path for path in control.paths if "/watch" in path)
        assert "replicas" not in first
        assert "replicas=r0%2Cr1" in second
        assert "detail=roster" in second
        assert "others=status" in second
        assert "hz=10" in second
        assert collector.picture.link.reconnects == 0


def test_an_unknown_detail_is_refused_where_it_is_asked_for(directory: Path) -> None:
    collector = Collector(parse_url(f"unix://{directory}/none.sock"))
    with pytest.raises(ValueError, match="'rooster' is none of roster, blocks, steps"):
        collector.set_interest(["r0"], ("rooster",))


def test_a_problem_in_one_line_has_its_colon() -> None:
    problem = Problem(
        status=501, code="watched_only", title="It can only be watched", detail="our gateway can"
    )
    assert describe(RefusedError(problem)) == "It can only be watched: our gateway can"
    assert describe(RefusedError(Problem(status=404, code="x", title="No."))) == "No."


async def test_an_answer_that_drips_for_ever_is_waited_for_no_longer_than_a_document_may_take(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "DOCUMENT_TIMEOUT_S", 0.3)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n["

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(head)
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass  # whoever asked has left
        finally:
            writer.close()

    path = directory / "drip.sock"
    server = await asyncio.start_unix_server(drip, path)
    async with server, EngineClient(parse_url(f"unix://{path}")) as client:
        with pytest.raises(UnreachableError, match=r"no whole answer in 0\.3 s"):
            await asyncio.wait_for(client.state(), 30.0)


@pytest.mark.parametrize("kept_s", [0.05, 60.0])
async def test_a_connection_that_was_idle_is_not_used_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch, kept_s: float
) -> None:
    """The server closes one that was idle just as the next question comes."""
    monkeypatch.setattr(idle_connections, "KEEP_S", kept_s)
    content = msgspec.json.encode(HELLO)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content)

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + content)
        await reader.read(1)  # of the next question, or the end
        writer.close()

    path = directory / "once.sock"
    server = await asyncio.start_unix_server(answer_once, path)
    async with server, EngineClient(parse_url(f"unix://{path}")) as client:
        await client.hello()
        await asyncio.sleep(0.2)
        if kept_s < 0.2:
            await client.hello()
        else:
            with pytest.raises(UnreachableError, match="disconnected"):
                await client.hello()
