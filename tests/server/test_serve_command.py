"""``infer-console serve``: what it says to whoever typed it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.server import short_directory

COMMAND = (sys.executable, "-c", "import sys; from infer_console.cli import main; sys.exit(main())")
SIMULATED = ("serve", "--simulate", "llama-70b@4xh100", "--replicas", "1")


@pytest.fixture
def directory() -> Generator[Path]:
    with short_directory() as path:
        yield path


def serve(directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *SIMULATED, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(directory), "XDG_STATE_HOME": str(directory / "state")},
    )


def refused(directory: Path, *words: str) -> tuple[int, str]:
    """Its exit code, and all that it said."""
    with serve(directory, *words) as server:
        out, said = server.communicate(timeout=60)
        assert out == ""
        return server.returncode, said


def test_where_it_listens_is_said_when_it_does_and_a_taken_socket_names_the_option(directory: Path) -> None:
    path = directory / "infer-console" / "default.sock"
    with serve(directory, "--listen", "127.0.0.1:0") as server:
        try:
            assert server.stderr is not None
            line = next(line for line in server.stderr if line.startswith("control "))
            control, gateway = line.removeprefix("control ").split("  gateway ")
            assert control == f"unix://{path}"
            with socket.socket(socket.AF_UNIX) as operator:
                operator.connect(str(path))
            host, port = gateway.strip().removeprefix("http://").split(":")
            socket.create_connection((host, int(port)), 10).close()
            assert refused(directory, "--listen", "127.0.0.1:0") == (
                1,
                f"infer-console serve: control socket {path} is in use by a running server; "
                "--control unix:///PATH names another\n",
            )
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)


def test_a_taken_port_and_an_open_one_name_the_option(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refused(directory, "--listen", listen) == (
            1,
            f"infer-console serve: cannot listen on {listen}: already in use; "
            "--listen HOST:PORT names another\n",
        )
    code, said = refused(directory, "--listen", "0.0.0.0:0")
    assert code == 2
    assert said.startswith("infer-console serve: --listen: 0.0.0.0 can be reached from other machines")
    assert "--api-keys" in said
