"""Sockets, bound before anything slow starts, so that a taken port or path is known at once."""

import errno
import fcntl
import ipaddress
import logging
import os
import socket
import stat
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from infer_engine.bounded_socket import BoundedSocket
from infer_engine.settings import SettingsError

log = logging.getLogger(__name__)

#: ``sun_path`` holds 108 bytes, the last of them NUL.
MAX_UNIX_PATH_BYTES = 107
#: How long a probe of an existing socket may take.
PROBE_TIMEOUT_S = 1.0
BACKLOG = 128
#: Connections on the control API's TCP listener, TLS handshakes included.
MAX_CONTROL_CONNECTIONS = 256


class ListenError(Exception):
    """A listener could not be made. ``str()`` is one line for the operator. ``setting``: which one names it,
    where that is known."""

    setting: str | None = None


@dataclass(frozen=True, slots=True)
class Sockets:
    """The server's listening sockets. ``gateway_url`` is where a client on this machine reaches the
    gateway."""

    control: socket.socket
    control_path: Path
    gateway: socket.socket
    gateway_url: str
    #: The control API's second listener, where one was asked for.
    control_tcp: socket.socket | None
    #: Tells the socket file from one that another server put there; inode numbers alone are used again.
    _control_file: tuple[int, int]

    @property
    def control_url(self) -> str:
        return f"unix://{self.control_path}"

    def close(self) -> None:
        """Close all and remove the socket file, unless another server has taken the path since."""
        self.gateway.close()
        self.control.close()
        if self.control_tcp is not None:
            self.control_tcp.close()
        try:
            if _file_identity(self.control_path) == self._control_file:
                self.control_path.unlink()
        except FileNotFoundError:
            return


def open_sockets(
    control: str,
    listen: str,
    *,
    or_free_port: bool,
    control_listen: str | None = None,
    control_group: int | None = None,
) -> Sockets:
    """Bind what the settings name; the members of the group ``control_group`` may open the control socket
    too. SettingsError for a malformed address, ListenError for one that cannot be had."""
    path = parse_unix_url(control)
    with ExitStack() as undo:
        with _named_by("listen"):
            gateway = bind_tcp(*parse_listen(listen), or_free_port=or_free_port)
        undo.callback(gateway.close)
        control_tcp = None
        if control_listen is not None:
            host, port = parse_listen(control_listen, "control_listen")
            with _named_by("control_listen"):
                bound = bind_tcp(host, port, or_free_port=False)
            control_tcp = BoundedSocket(bound, MAX_CONTROL_CONNECTIONS)
            undo.callback(control_tcp.close)
        with _named_by("control"):
            bound_control = bind_unix(path, control_group)
        sockets = Sockets(
            control=bound_control,
            control_path=path,
            gateway=gateway,
            gateway_url=url_of(gateway),
            control_tcp=control_tcp,
            _control_file=_file_identity(path),
        )
        undo.pop_all()
    return sockets


@contextmanager
def _named_by(setting: str) -> Generator[None]:
    try:
        yield
    except ListenError as error:
        error.setting = setting
        raise


def parse_unix_url(url: str) -> Path:
    """The path of ``unix:///path``; SettingsError for anything else."""
    prefix = "unix://"
    path = url[len(prefix) :] if url.startswith(prefix) else ""
    if not path.startswith("/") or "\0" in path:
        raise SettingsError(f"control: expected unix:///absolute/path, got {url!r}")
    return Path(path)


def parse_listen(listen: str, setting: str = "listen") -> tuple[str, int]:
    """``HOST:PORT`` (``[::1]:8000`` for IPv6) as host and port; SettingsError otherwise."""
    host, colon, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise SettingsError(f"{setting}: expected HOST:PORT, got {listen!r}")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise SettingsError(f"{setting}: the port is a number from 0 to 65535, got {port!r}")
    return host.strip("[]"), int(port)


def bind_unix(path: Path, group: int | None = None) -> socket.socket:
    """Listen on ``path`` with mode 0600, or 0660 for the members of ``group``. Missing directories are made
    with mode 0700; one that others can enter is left as it is, with a warning; a stale socket is removed; a
    live one, a path that is too long and a directory that others can write to are ListenErrors."""
    length = len(os.fsencode(path))
    if length > MAX_UNIX_PATH_BYTES:
        raise ListenError(
            f"control socket path is {length} bytes long, at most {MAX_UNIX_PATH_BYTES} are allowed: {path}"
        )
    try:
        _make_private_directory(path.parent)
        with _exclusive(path.parent):
            _remove_stale(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                _bind_private(listener, path)
                if group is not None:
                    os.chown(path, -1, group)
                    path.chmod(0o660)
                listener.listen(BACKLOG)
            except BaseException:
                listener.close()
                raise
    except OSError as error:
        raise ListenError(f"cannot listen on control socket {path}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def bind_tcp(host: str, port: int, *, or_free_port: bool) -> socket.socket:
    """Listen on ``host:port``; when it is taken, on a free port if ``or_free_port``, else ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_dead_peers(listener)
        try:
            listener.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not or_free_port:
                raise
            listener.bind((host, 0))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        what = "already in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise ListenError(f"cannot listen on {host}:{port}: {what}") from error
    listener.setblocking(False)
    return listener


def _file_identity(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_ino, info.st_mtime_ns


def _notice_dead_peers(listener: socket.socket) -> None:
    """Accepted sockets inherit this: a client whose machine or network vanished without a word is noticed in
    about 30 s, one that leaves what was sent unacknowledged in 20 s."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 20_000),
    ):
        if hasattr(socket, name):  # Linux has them all
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Where a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def reached_at(listener: socket.socket, names: Sequence[str], scheme: str) -> str | None:
    """Where other machines reach it, by the first of its ``names``, else by its address; None where it
    listens on all addresses and has no name, or only for this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_loopback:
        return None
    if not names:
        return None if ipaddress.ip_address(host).is_unspecified else url_of(listener, scheme)
    return f"{scheme}://{names[0]}:{port}"


def _make_private_directory(directory: Path) -> None:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    for each in (directory.resolve(), *directory.resolve().parents):
        info = each.stat()
        if info.st_uid not in (0, os.getuid()):
            raise ListenError(f"control socket directory {each} belongs to another user")
        shared = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if shared and not info.st_mode & stat.S_ISVTX:
            raise ListenError(f"control socket directory {each} can be written by others (chmod 700 it)")
    if all(
        each.stat().st_mode & stat.S_IXOTH for each in (directory.resolve(), *directory.resolve().parents)
    ):
        log.warning(
            "others can enter the control socket's directory %s: only the socket's own mode keeps them out "
            "(chmod 700 the directory)",
            directory,
        )


@contextmanager
def _exclusive(directory: Path) -> Generator[None]:
    """Two servers that start at once must not both find the same stale socket."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"control socket path {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except TimeoutError:
            pass  # somebody is there, only slow
    raise ListenError(f"control socket {path} is in use by a running server")


def _bind_private(listener: socket.socket, path: Path) -> None:
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
