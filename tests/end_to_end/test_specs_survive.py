"""A server that ends in the middle of things, kindly or not, is found again as it was left: a real one, with
real processes under load."""

import asyncio
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from infer_console.cli import main
from infer_engine.fleet.spec_file import SpecDir
from infer_engine.protocol import Status
from support.fleets import until
from support.processes import alive, wait_gone
from support.server import UNHURRIED, EngineServer, short_directory
from support.tiny_model import write_tiny_gguf


@contextmanager
def server_at(directory: Path, log_name: str) -> Generator[EngineServer]:
    model = write_tiny_gguf(directory / "tiny.gguf", layers=UNHURRIED // 2)
    server = EngineServer(
        directory,
        {
            "replicas": 2,
            "state_dir": str(directory / "state"),
            "replica": {"model": str(model), "kv_blocks": 128, "threads": 1, "dtype": "fp32"},
        },
        log_name=log_name,
    )
    try:
        server.wait_listening()
        yield server
    finally:
        server.stop()


def states(status: Status) -> dict[str, str]:
    return {replica.id: replica.state for replica in status.replicas}


async def ask_long(server: EngineServer) -> int:
    """The status of a long stream, or of what became of it; 0 when the connection broke."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True}
    try:
        async with (
            server.async_gateway() as client,
            client.stream("POST", "/v1/completions", json=body) as answer,
        ):
            async for _ in answer.aiter_bytes():
                pass
            return answer.status_code
    except httpx2.HTTPError:
        return 0


async def loaded(server: EngineServer, streams: int) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.create_task(ask_long(server)) for _ in range(streams)]
    await until(lambda: server.status().totals.running == streams, "all run")
    return tasks


async def test_it_comes_back_as_it_was_left_however_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with short_directory() as directory:
        with server_at(directory, "first.log") as server:
            await asyncio.to_thread(server.wait_ready)
            load = await loaded(server, 4)
            stopped = server.status().replicas[0].pid
            assert stopped is not None
            os.kill(stopped, signal.SIGSTOP)
            await until(lambda: server.status().replicas[0].incarnation == 2, "a stalled one is replaced")
            assert not alive(stopped), "though it could not even hear a signal"
            assert server.status().replicas[0].stalls == 1

            command(server, "/replicas/r1:fence", reason="smoke", force=True)
            await until(lambda: states(server.status()) == {"r0": "ready", "r1": "fenced", "r2": "ready"})
            assert len(server.children()) == 2
            command(server, "/tenants/ann", limits={"requests_per_minute": 7})
            command(server, "/headroom", percent=40, replica="r2")
            await asyncio.gather(*load)
            load = await loaded(server, 4)
            # Answered, so on the disk: the server dies in the middle of the drain.
            command(server, "/replicas/r0:drain", mode="wait", deadline_s=None)
            versions = {each.id: each.resource_version for each in server.status().replicas}
            family = server.children()
            os.kill(server.pid, signal.SIGKILL)
            await asyncio.gather(*load)
            await asyncio.to_thread(server.process.wait, 60)
            assert wait_gone(family) == []
        with server_at(directory, "second.log") as server:
            wanted = {"r0": "drained", "r1": "fenced", "r2": "ready"}
            await until(lambda: states(server.status()) == wanted, "as it was left")
            await until(lambda: server.status().replicas[2].kv.admit_limit == 76, "its headroom")
            status = server.status()
            assert {each.id: each.resource_version for each in status.replicas} == versions
            with server.control() as client:
                [tenant] = client.get("/control/v1/tenants").json()["tenants"]
            assert (tenant["name"], tenant["limits"]["requests_per_minute"]) == ("ann", 7)
            assert status.fleet.specs_trouble is None
            kept = status.replicas[2].kept_limits
            assert kept.keys() == {"admit_limit"}
            assert kept["admit_limit"] < time.time()
            assert [each.kept_limits for each in status.replicas[:2]] == [{}, {}]
            assert "r2 has limits from before, kept with the state: admit_limit 76 (set " in server.log
            for words in (("headroom",), ("limits", "--replica", "r2")):
                assert await asyncio.to_thread(main, ["--connect", server.control_url, *words]) == 0
                said = capsys.readouterr().out
                assert "r2: kept from before the server's start: admit_limit 76 (since 20" in said
            command(server, "/headroom", percent=20, replica="r2")
            await until(lambda: server.status().replicas[2].kept_limits == {}, "set in this run")
            assert server.errors == []
            load = await loaded(server, 2)
            command(server, "/replicas/r0:undrain")
            versions = {each.id: each.resource_version for each in server.status().replicas}
            family = server.children()
            server.process.terminate()
            await asyncio.gather(*load)
            assert await asyncio.to_thread(server.process.wait, 60) == 0
            assert wait_gone(family) == []
        known, lost = SpecDir(directory / "state").read()
        assert (lost, known is None) == (None, False)
        assert known is not None
        assert {
            each: f"{known.book}-{written.generation}" for each, written in known.replicas.items()
        } == versions
        assert not known.replicas["r0"].spec.cordoned


def command(server: EngineServer, path: str, **body: object) -> None:
    with server.control() as client:
        answer = client.post(f"/control/v1{path}", json=body)
        assert answer.status_code == 200, answer.text


async def test_a_state_directory_that_cannot_be_used_is_said_at_once() -> None:
    with short_directory() as directory:
        (directory / "state").write_text("")
        server = EngineServer(directory, {"state_dir": str(directory / "state")})
        assert await asyncio.to_thread(server.process.wait, 60) == 1
        assert f"infer-engine: state directory {directory}/state: " in server.log
        server.stop()
