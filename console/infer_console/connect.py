"""Which engine server to watch: from the command line, the environment, a context, or one of our own."""

import dataclasses
import difflib
import importlib.util
import os
import socket
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import platformdirs
from infer_engine.settings import default_control_socket

#: A socket path longer than this cannot be bound or reached (``sun_path`` is 108 bytes, one of them the NUL).
MAX_SOCKET_PATH_BYTES = 107
#: The private directory of a console's own engine, and the control sockets in all of them.
EMBEDDED_PREFIX = "infer-console-"
EMBEDDED_SOCKETS = f"{EMBEDDED_PREFIX}*/control.sock"
PROBE_TIMEOUT_S = 1.0

#: Schemes that are understood, but for which there is no source yet.
PLANNED_SCHEMES = frozenset(
    {"ssh", "vllm+http", "vllm+https", "sglang+http", "sglang+https", "llamacpp+http", "llamacpp+https"}
    | {"auto+http", "auto+https", "mqtt", "mqtts", "dns+vllm", "dns+sglang", "dns+llamacpp"}
)

HELP = """\
nothing to connect to. Give one of:
  infer-console --connect unix:///run/user/1000/infer-console/default.sock   an engine server on this machine
  infer-console --connect https://host:9000                                  one that listens on TCP
  INFER_CONSOLE_CONNECT=URL infer-console                                    the same, from the environment
  a context in {contexts}
or install the engine, and infer-console starts one itself:
  pip install 'infer-console[engine]'
Beside a console that runs its own engine nothing needs to be given: if it is your only one, it is found."""


class ConnectError(ValueError):
    """What was given names no server that can be connected to; ``str()`` says what was given and what is
    allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One engine server's control API."""

    url: str
    #: Path of the unix socket, None for TCP.
    socket: str | None = None
    name: str | None = None
    colour: str | None = None
    read_only: bool = False
    production: bool = False
    #: Who named it, for error messages.
    source: str = "--connect"

    @property
    def base_url(self) -> str:
        """What HTTP requests are addressed to; over a unix socket the host is only a header."""
        return "http://localhost" if self.socket is not None else self.url


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """One entry of ``contexts.toml``, named by its table: ``[contexts.lab]``."""

    url: str
    colour: str | None = None
    read_only: bool = False
    production: bool = False


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    current: str | None = None
    contexts: dict[str, Context] = {}


def contexts_path() -> Path:
    return Path(platformdirs.user_config_dir("infer-console")) / "contexts.toml"


def engine_installed() -> bool:
    """Whether the engine extra is there; looks without importing anything of it."""
    return importlib.util.find_spec("torch") is not None


def parse_url(url: str, source: str = "--connect") -> Target:
    """Raise ConnectError naming ``source``, the URL and what is allowed."""
    given = url.strip()
    try:
        parts = urlsplit(given)
    except ValueError as error:  # brackets that do not fit
        raise ConnectError(f"{source}: {given!r}: {error}") from error
    scheme = parts.scheme.lower()
    if scheme == "unix":
        return _unix_target(given, parts.netloc, parts.path, source)
    if scheme in ("http", "https"):
        try:
            port = parts.port
        except ValueError as error:
            raise ConnectError(f"{source}: {given!r}: {error}") from error
        if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ConnectError(f"{source}: {given!r} is not {scheme}://HOST:PORT")
        if parts.username is not None:
            raise ConnectError(f"{source}: a URL is no place for a secret; use the server's token file")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return Target(url=f"{scheme}://{host}{'' if port is None else f':{port}'}", source=source)
    if scheme in PLANNED_SCHEMES:
        raise ConnectError(
            f"{source}: {scheme}:// is not supported yet; use unix:///path or http(s)://HOST:PORT"
        )
    raise ConnectError(f"{source}: {given!r} is not a URL of the form unix:///path or http(s)://HOST:PORT")


def _unix_target(given: str, netloc: str, path: str, source: str) -> Target:
    if netloc or not path.startswith("/") or path.endswith("/"):
        raise ConnectError(f"{source}: {given!r} is not unix:///absolute/path (three slashes)")
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise ConnectError(
            f"{source}: the socket path has {length} bytes; a unix socket's may have {MAX_SOCKET_PATH_BYTES}"
        )
    return Target(url=f"unix://{path}", socket=path, source=source)


def resolve(
    connect: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    contexts_file: Path | None = None,
) -> Target | None:
    """The server that was named: ``--connect``, else ``INFER_CONSOLE_CONNECT``, else the current context;
    None when nobody named one. Raise ConnectError for a name that leads nowhere."""
    if len(connect) > 1:
        raise ConnectError("--connect: more than one server is not supported yet; give one")
    if connect:
        return parse_url(connect[0])
    if environ.get("INFER_CONSOLE_CONNECT"):
        return parse_url(environ["INFER_CONSOLE_CONNECT"], "INFER_CONSOLE_CONNECT")
    return _current_context(contexts_file or contexts_path())


def resolve_running(connect: Sequence[str], environ: Mapping[str, str] = os.environ) -> Target:
    """As ``resolve``; when nobody named a server, the default control socket of ``infer-console serve``, or,
    when nothing listens there, the engine of the one console that runs its own."""
    named = resolve(connect, environ)
    if named is not None:
        return named
    default = parse_url(default_control_socket(), "default control socket")
    if default.socket is not None and listens(Path(default.socket)):
        return default
    return find_embedded() or default


def find_embedded() -> Target | None:
    """The engine that a console of this user runs as its own, None when there is none. Raise ConnectError
    that lists them when there are several."""
    candidates = private_directory_place().glob(EMBEDDED_SOCKETS)
    found = sorted(path for path in candidates if _is_ours(path) and listens(path))
    if len(found) > 1:
        listed = "".join(f"\n  --connect unix://{path}" for path in found)
        raise ConnectError(f"{len(found)} consoles run an engine of their own; name one:{listed}")
    return parse_url(f"unix://{found[0]}", "embedded engine") if found else None


def private_directory_place() -> Path:
    """Where a console makes the private directory of its own engine: the user's runtime directory, if socket
    paths in it are short enough."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    longest = len(os.fsencode(runtime)) + len("/infer-console-xxxxxxxx/control.sock")
    usable = runtime and longest <= MAX_SOCKET_PATH_BYTES and os.access(runtime, os.W_OK | os.X_OK)
    return Path(runtime if usable else "/tmp")


def listens(path: Path) -> bool:
    """Whether somebody takes connections on this unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True  # somebody is there, only slow
        except OSError:
            return False
    return True


def _is_ours(path: Path) -> bool:
    """A socket of this user in a directory that nobody else can enter."""
    try:
        directory, file = path.parent.lstat(), path.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(directory.st_mode) and not stat.S_IMODE(directory.st_mode) & 0o077
    return private and stat.S_ISSOCK(file.st_mode) and {directory.st_uid, file.st_uid} == {os.getuid()}


def _current_context(path: Path) -> Target | None:
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        known = msgspec.convert(raw, Contexts)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConnectError(f"{path}: {error}") from error
    if known.current is None:
        return None
    context = known.contexts.get(known.current)
    if context is None:
        near = difflib.get_close_matches(known.current, known.contexts, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known.contexts) or 'none'}"
        raise ConnectError(f"{path}: there is no context {known.current!r}{hint}")
    target = parse_url(context.url, f"context {known.current}")
    return dataclasses.replace(
        target,
        name=known.current,
        colour=context.colour,
        read_only=context.read_only,
        production=context.production,
    )
