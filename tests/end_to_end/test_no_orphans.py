"""However the console or the server dies, nothing of it stays behind."""

import os
import signal
from pathlib import Path

import pytest
from support.processes import children, wait_gone
from support.server import serving, short_directory
from support.terminal import Terminal
from support.tiny_model import write_tiny_gguf

pytestmark = pytest.mark.terminal


def test_killing_the_server_ends_its_replicas() -> None:
    with serving(replicas=2) as server:
        family = server.children()
        assert len(family) >= 2
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait(60)
        assert wait_gone(family) == []


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGHUP])
def test_killing_the_console_ends_its_embedded_engine(console: Path, killer: signal.Signals) -> None:
    with short_directory() as directory:
        write_tiny_gguf(directory / "tiny.gguf")
        environment = {
            "INFER_CONSOLE_CACHE": str(directory / "cache"),
            "INFER_CONSOLE_MODEL": str(directory / "tiny.gguf"),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_RUNTIME_DIR": str(directory),
        }
        with Terminal([str(console)], columns=120, rows=36, env=environment) as terminal:
            terminal.wait_for(r"r0\s+ready", 180)
            family = children(terminal.pid)
            assert len(family) >= 3, "the engine server and its two replicas"
            os.kill(terminal.pid, killer)
            terminal.wait_exit()
            assert wait_gone(family) == []
            if killer != signal.SIGKILL:
                assert terminal.tty_now() == terminal.tty_before
                assert b"\x1b[?1049l" in terminal.raw
