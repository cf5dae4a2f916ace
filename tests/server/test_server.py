"""The server as a process: how it starts, how it ends, and that nothing of it is left however it died."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from infer_engine.__main__ import main
from support.processes import wait_gone
from support.server import STOP_TIMEOUT_S, EngineServer, serving, short_directory
from support.tiny_model import write_tiny_gguf


@pytest.fixture
def directory() -> Generator[Path]:
    with short_directory() as path:
        yield path


def run_to_its_end(directory: Path, settings: object, *, listens: bool = False) -> tuple[int, str]:
    """Start a server that cannot serve; its exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "infer_engine", "serve", "--settings", json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "INFER_CONSOLE_CACHE": str(directory / "cache")},
        check=False,
    )
    assert bool(done.stdout) == listens
    return done.returncode, done.stderr


def test_it_starts_serves_and_ends() -> None:
    with serving(replicas=1, drain_s=40.0) as server, server.gateway() as client:
        assert server.hello == {
            "control": server.control_url,
            "gateway": server.gateway_url,
            "pid": server.pid,
        }
        assert "libtorch" not in Path(f"/proc/{server.pid}/maps").read_text()
        assert client.get("/readyz").status_code == 200

        second = EngineServer(server.directory, server.settings, log_name="second")
        assert second.process.wait(STOP_TIMEOUT_S) == 1
        assert (
            second.log == f"infer-engine: control socket {server.socket_path} is in use by a running server\n"
        )
        assert second.stop() == 1
        assert server.status().totals.ready == 1

        # What runs may finish; then everything ends.
        body = {"model": "tiny", "prompt": [50] * 20, "max_tokens": 400, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line.startswith("data: ")]
        assert rest[-1] == "data: [DONE]"
        assert server.process.wait(STOP_TIMEOUT_S) == 0
        assert server.stop() == 0
        assert not server.socket_path.exists()
        assert server.errors == []


def test_no_process_outlives_it() -> None:
    with serving(replicas=2, ready=False) as server:
        server.wait_ready(1)
        family = server.children()
        assert len(family) == 2
        server.process.kill()
        assert server.process.wait(STOP_TIMEOUT_S) == -signal.SIGKILL
        assert wait_gone(family) == []


def test_it_ends_with_its_parent() -> None:
    with serving(replicas=1, lifeline=True, ready=False) as server:
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(STOP_TIMEOUT_S) == 0
        assert server.errors == []


def test_a_taken_port_is_one_clear_line(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, stderr = run_to_its_end(directory, {"control": f"unix://{directory}/c.sock", "listen": listen})
    assert (code, stderr) == (1, f"infer-engine: cannot listen on {listen}: already in use\n")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{", "settings: not valid JSON"),
        ("[]", "settings: expected a JSON object"),
        ("[" * 100_000, "settings: not valid JSON"),
        ('{"replicas": 0}', "replicas"),
        ('{"replicas": "many"}', "replicas"),
        ('{"colour": "red"}', "colour"),
        ('{"replica": {"max_running": -1}}', "max_running"),
    ],
)
def test_wrong_settings_are_named(capsys: pytest.CaptureFixture[str], settings: str, says: str) -> None:
    assert main(["serve", "--settings", settings]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"listen": "here"}, "HOST:PORT"), ({"control": "tcp://localhost:1"}, "unix:///")],
)
def test_wrong_addresses_are_named(directory: Path, settings: object, says: str) -> None:
    code, stderr = run_to_its_end(directory, settings)
    assert (code, stderr.count("\n")) == (2, 1)
    assert says in stderr


@pytest.mark.parametrize("content", [None, b"", b"GGUF", b"GGUF" + b"\xff" * 64, b"<html>" * 100])
def test_a_bad_model_is_one_clear_line(directory: Path, content: bytes | None) -> None:
    model = directory / "bad.gguf"
    if content is not None:
        model.write_bytes(content)
    settings = {
        "control": f"unix://{directory}/c.sock",
        "listen": "127.0.0.1:0",
        "replica": {"model": str(model)},
    }
    code, stderr = run_to_its_end(directory, settings)
    assert code == 1
    assert stderr.startswith("infer-engine: ")
    assert "bad.gguf" in stderr
    assert stderr.count("\n") == 1
    assert not (directory / "c.sock").exists()


def test_a_pool_beyond_the_memory_is_one_clear_line(directory: Path) -> None:
    model = write_tiny_gguf(directory / "tiny.gguf")
    settings = {
        "control": f"unix://{directory}/c.sock",
        "listen": "127.0.0.1:0",
        "replicas": 1,
        "replica": {"model": str(model), "kv_blocks": 10_000_000, "block_size": 256, "dtype": "fp32"},
    }
    code, stderr = run_to_its_end(directory, settings, listens=True)
    assert code == 1
    last = stderr.splitlines()[-1]
    assert last.startswith("infer-engine: no replica could start: ")
    assert "10000000" in last.replace(",", "")


def test_fetch_prints_the_path_of_a_file(directory: Path) -> None:
    model = write_tiny_gguf(directory / "tiny.gguf")
    command = [sys.executable, "-m", "infer_engine", "fetch", "--model"]
    environment = {**os.environ, "INFER_CONSOLE_CACHE": str(directory / "cache")}
    done = subprocess.run(
        [*command, str(model)], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{model}\n")
    assert list((directory / "cache" / "weights").glob("*.safetensors"))
    assert "\x1b" not in done.stderr
    missing = subprocess.run(
        [*command, str(directory / "none.gguf")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "none.gguf" in missing.stderr
