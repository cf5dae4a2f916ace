"""The console and ``wait`` where nobody named a server: what is there is found, what is dead is not waited
for."""

import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from infer_console.cli import codes, main, tui
from infer_console.connect import Target, find_running
from support.server import EngineServer, short_directory

COMMAND = (sys.executable, "-c", "import sys; from infer_console.cli import main; sys.exit(main())")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    with short_directory() as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("INFER_CONSOLE_CONNECT", raising=False)
        yield path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the console was opened on."""
    seen: list[str] = []

    def watch(target: Target, _arguments: object) -> int:
        seen.append(target.url)
        return codes.OK

    def embed(_arguments: object) -> int:
        seen.append("embedded")
        return codes.OK

    monkeypatch.setattr(tui, "is_terminal", lambda _stream: True)
    monkeypatch.setattr(tui, "_watch", watch)
    monkeypatch.setattr(tui, "_embed", embed)
    return seen


def bound(path: Path, mode: int = 0o700) -> socket.socket:
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(mode)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    return listener


def test_the_console_goes_to_the_server_at_the_default_socket(
    runtime: Path, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = runtime / "infer-console" / "default.sock"
    with bound(path) as listener:
        listener.listen()
        assert main([]) == codes.OK
        assert opened == [f"unix://{path}"]
        assert f"connecting to unix://{path} (default control socket); --embedded" in capsys.readouterr().err
        assert main(["--embedded"]) == codes.OK
        assert opened[1:] == ["embedded"]


def test_it_starts_an_engine_where_nobody_listens(runtime: Path, opened: list[str]) -> None:
    assert main([]) == codes.OK
    with bound(runtime / "infer-console" / "default.sock"):
        assert main([]) == codes.OK, "a socket that nobody listens on is nothing"
    assert opened == ["embedded", "embedded"]


def test_a_socket_that_others_could_have_put_there_is_not_taken(runtime: Path) -> None:
    with bound(runtime / "infer-console" / "default.sock", 0o777) as listener:
        listener.listen()
        assert find_running() is None
        (runtime / "infer-console").chmod(0o755)
        assert find_running() is not None


def test_without_an_engine_it_says_where_it_looked_and_how_to_find_one(
    runtime: Path,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tui, "engine_installed", lambda: False)
    assert main([]) == codes.USAGE
    said = capsys.readouterr().err
    assert f"nobody listens at unix://{runtime}/infer-console/default.sock" in said
    assert "infer-console discover" in said
    assert "/run/user/1000" not in said
    assert opened == []


def test_its_own_engine_is_no_server_that_is_named(
    opened: list[str], runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--embedded", "--connect", "unix:///run/x.sock"]) == codes.USAGE
    assert "--embedded" in capsys.readouterr().err
    assert opened == []


def test_wait_finds_the_engine_of_a_console_that_came_after_it(runtime: Path, engine: EngineServer) -> None:
    words = [*COMMAND, "wait", "--ready", "--timeout", "60s"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "infer-console/default.sock" in waiting.stderr.readline()
        embedded = runtime / "infer-console-a"
        embedded.mkdir(mode=0o700)
        (embedded / "control.sock").hardlink_to(engine.socket_path)
        assert waiting.wait(120) == codes.OK
