"""Sockets are private, never stolen from a living server, and every failure is one clear line."""

import os
import socket
import stat
from collections.abc import Generator
from pathlib import Path

import pytest
from infer_engine.settings import SettingsError
from infer_engine.sockets import ListenError, bind_tcp, bind_unix, open_sockets, parse_listen, parse_unix_url
from support.server import short_directory


@pytest.fixture
def directory() -> Generator[Path]:
    with short_directory() as path:
        yield path


def test_the_socket_is_private(directory: Path) -> None:
    path = directory / "new" / "c.sock"
    with bind_unix(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_directory_that_others_can_enter_is_told(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.chmod(0o711)
    with bind_unix(directory / "open.sock"):
        assert "others can enter the control socket's directory" in caplog.text
    caplog.clear()
    directory.chmod(0o700)
    with bind_unix(directory / "closed.sock"):
        assert caplog.text == ""


def test_a_live_socket_is_left_alone(directory: Path) -> None:
    path = directory / "c.sock"
    with bind_unix(path):
        with pytest.raises(ListenError, match="in use by a running server"):
            bind_unix(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_stale_socket_is_replaced(directory: Path) -> None:
    path = directory / "c.sock"
    bind_unix(path).close()
    assert path.exists()
    with bind_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_file_is_not_replaced(directory: Path) -> None:
    path = directory / "c.sock"
    path.write_text("precious")
    with pytest.raises(ListenError, match="is not a socket"):
        bind_unix(path)
    assert path.read_text() == "precious"


def test_a_long_path_is_refused_with_both_numbers(directory: Path) -> None:
    with pytest.raises(ListenError, match=r"is 1\d\d bytes long, at most 107"):
        bind_unix(directory / ("x" * 100))


def test_a_directory_that_others_can_write_to_is_refused(directory: Path) -> None:
    shared = directory / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ListenError, match="can be written by others"):
        bind_unix(shared / "c.sock")


def test_a_taken_port_is_refused_or_replaced() -> None:
    with bind_tcp("127.0.0.1", 0, or_free_port=False) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: already in use"):
            bind_tcp("127.0.0.1", port, or_free_port=False)
        with bind_tcp("127.0.0.1", port, or_free_port=True) as other:
            assert other.getsockname()[1] not in (0, port)


def test_closing_removes_only_the_own_socket(directory: Path) -> None:
    control = f"unix://{directory / 'c.sock'}"
    first = open_sockets(control, "127.0.0.1:0", or_free_port=False)
    first.control.close()
    second = open_sockets(control, "127.0.0.1:0", or_free_port=False)
    first.close()
    assert second.control_path.exists()
    second.close()
    assert not second.control_path.exists()


def test_a_refused_control_socket_gives_the_port_back(directory: Path) -> None:
    (directory / "c.sock").write_text("")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ListenError):
        open_sockets(f"unix://{directory / 'c.sock'}", "127.0.0.1:0", or_free_port=False)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("url", ["", "/tmp/x", "unix://relative", "unix:/x", "tcp://h:1", "unix:///a\0b"])
def test_control_urls_are_checked(url: str) -> None:
    with pytest.raises(SettingsError, match="control"):
        parse_unix_url(url)


@pytest.mark.parametrize(
    "listen", ["", "8000", ":8000", "localhost", "h:65536", "h:-1", "h:x", "::1:80", "h:٣"]
)
def test_listen_addresses_are_checked(listen: str) -> None:
    with pytest.raises(SettingsError, match="listen"):
        parse_listen(listen)


def test_listen_addresses_are_read() -> None:
    assert parse_listen("127.0.0.1:8000") == ("127.0.0.1", 8000)
    assert parse_listen("[::1]:0") == ("::1", 0)
