"""Which engine server to watch: from the command line, the environment, a context, or one of our own."""

import dataclasses
import importlib.util
import ipaddress
import os
import re
import socket
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from infer_engine.settings import default_control_socket

from infer_console.contexts import ContextsError, find_context, read_contexts
from infer_console.contexts import contexts_path as contexts_path
from infer_console.credentials import CredentialError, read_token, token_of_environment
from infer_console.watched import DEFAULT_PACE, Pace, Watched, is_watched, joined, parse_watched

#: A socket path longer than this cannot be bound or reached (``sun_path`` is 108 bytes, one of them the NUL).
MAX_SOCKET_PATH_BYTES = 107
#: The private directory of a console's own engine, and the control sockets in all of them.
EMBEDDED_PREFIX = "infer-console-"
EMBEDDED_SOCKETS = f"{EMBEDDED_PREFIX}*/control.sock"
PROBE_TIMEOUT_S = 1.0
#: The sources of targets that nobody named.
DEFAULT_SOURCE, EMBEDDED_SOURCE = "default control socket", "embedded engine"

HELP = """\
nothing to connect to: nobody listens at {default}, where a server
started here without --control would, and no console of yours runs an engine of its own. Give one of:
  infer-console discover                              which servers this machine runs, and their URLs
  infer-console --connect unix:///path/to.sock        an engine server on this machine, started with --control
  infer-console --connect ssh://host                  one that you can reach by ssh
  infer-console --connect https://host:9000           one that listens on TCP
  infer-console --connect vllm+http://host:8000       vLLM (sglang+, llamacpp+, auto+)
  infer-console --connect vllm+http://a:8000,b:8000   several as one fleet
  INFER_CONSOLE_CONNECT=URL infer-console             the same, from the environment
  a context in {contexts}
or install the engine, and infer-console starts one itself:
  pip install 'infer-console[engine]'"""


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
    token: str | None = field(default=None, repr=False)
    #: Certificates (PEM) to trust in the place of the system's.
    ca_file: str | None = None
    #: The machine to go to by ssh, None where that is not asked for.
    ssh: "SshHost | None" = None
    #: Servers that are not ours, as one fleet; empty for one of ours.
    watched: tuple[Watched, ...] = ()
    pace: Pace = field(default_factory=lambda: DEFAULT_PACE)
    #: Who named it, for error messages.
    source: str = "--connect"

    @property
    def base_url(self) -> str:
        """What HTTP requests are addressed to; over a unix socket the host is only a header."""
        if self.watched:
            return self.watched[0].base_url()
        return "http://localhost" if self.socket is not None or self.ssh is not None else self.url

    @property
    def base_urls(self) -> list[str]:
        """Wherever requests go."""
        return [each.base_url() for each in self.watched] or [self.base_url]

    @property
    def tls(self) -> bool:
        return any(url.startswith("https:") for url in self.base_urls)


@dataclass(frozen=True, slots=True)
class SshHost:
    """Words for the ssh command; each is checked, so that none can be taken for an option or by a shell."""

    host: str
    user: str | None = None
    port: int | None = None
    #: Path of the control socket there, None for its default.
    control: str | None = None


_SSH_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9a-fA-F:]*:[0-9a-fA-F:.]+")
_SSH_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_SSH_PATH = re.compile(r"(/[A-Za-z0-9._@+-]+)+")


def engine_installed() -> bool:
    """Whether the engine extra is there; looks without importing anything of it."""
    return importlib.util.find_spec("torch") is not None


def gateway_installed() -> bool:
    """Whether a server can run here whose replicas compute elsewhere, or not at all: the extra ``upstream``,
    of which the engine has all."""
    needed = ("numpy", "tokenizers", "safetensors", "jinja2", "starlette", "uvicorn", "zmq", "llguidance")
    return all(importlib.util.find_spec(name) is not None for name in needed)


def parse_url(url: str, source: str = "--connect") -> Target:
    """Raise ConnectError naming ``source``, the URL and what is allowed."""
    given = url.strip()
    if is_watched(given):
        try:
            servers = parse_watched(given)
        except ValueError as error:
            raise ConnectError(f"{source}: {error}") from error
        return Target(url=joined(servers), watched=servers, source=source)
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
        url = f"{scheme}://{host}{'' if port is None else f':{port}'}"
        return Target(url=url, source=source)
    if scheme == "ssh":
        return _ssh_target(given, parts, source)
    if scheme in ("mqtt", "mqtts"):
        raise ConnectError(
            f"{source}: a broker is no server to connect to; infer-console discover {scheme}://… lists the "
            "fleets that it knows of, and what to connect to"
        )
    raise ConnectError(
        f"{source}: {given!r} is not a URL of the form unix:///path or http(s)://HOST:PORT or ssh://HOST,"
        " nor of a server to be watched, such as vllm+http://HOST:PORT or dns+vllm://NAME:PORT"
    )


def _ssh_target(given: str, parts: SplitResult, source: str) -> Target:
    try:
        port = parts.port
    except ValueError as error:
        raise ConnectError(f"{source}: {given!r}: {error}") from error
    path = parts.path if parts.path not in ("", "/") else None
    # As written: urlsplit's hostname is in small letters, and aliases of ssh's configuration need not be.
    user, at, rest = parts.netloc.rpartition("@")
    host = rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]
    if parts.password is not None:
        raise ConnectError(f"{source}: a URL is no place for a secret; ssh uses your keys and its agent")
    if (
        not _SSH_HOST.fullmatch(host)
        or (at and not _SSH_USER.fullmatch(user))
        or (path is not None and not _SSH_PATH.fullmatch(path))
        or parts.query
        or parts.fragment
    ):
        raise ConnectError(f"{source}: {given!a} is not ssh://[USER@]HOST[:PORT][/path/of/control.sock]")
    ssh = SshHost(host, user if at else None, port, path)
    return Target(url=f"ssh://{parts.netloc}{path or ''}", ssh=ssh, source=source)


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
    context: str | None = None,
) -> Target | None:
    """The server that was named: ``--connect`` or ``--context``, else ``INFER_CONSOLE_CONNECT``, else the
    current context; None when nobody named one. Raise ConnectError for a name that leads nowhere."""
    if len(connect) > 1:
        raise ConnectError("--connect: this speaks to one server; only the console takes several")
    if connect and context is not None:
        raise ConnectError("--connect and --context: both name a server; give one of them")
    if connect:
        return _with_environment(parse_url(connect[0]), environ)
    if context is None and environ.get("INFER_CONSOLE_CONNECT"):
        url = environ["INFER_CONSOLE_CONNECT"]
        return _with_environment(parse_url(url, "INFER_CONSOLE_CONNECT"), environ)
    return _context(contexts_file or contexts_path(), context, environ)


def resolve_running(
    connect: Sequence[str], environ: Mapping[str, str] = os.environ, context: str | None = None
) -> Target:
    """As ``resolve``; when nobody named a server, the default control socket of ``infer-console serve``, or,
    when nothing listens there, the engine of the one console that runs its own."""
    named = resolve(connect, environ, context=context)
    if named is not None:
        return named
    default = parse_url(default_control_socket(), DEFAULT_SOURCE)
    if default.socket is not None and listens(Path(default.socket)):
        return default
    return find_embedded() or default


def find_running() -> Target | None:
    """This user's server at the default control socket, else the engine of the one console that runs its own;
    None when there is neither. A socket that nobody listens on is nothing, nor is one that others could have
    put there."""
    default = parse_url(default_control_socket(), DEFAULT_SOURCE)
    path = Path(default.socket or "")
    return default if _is_own_socket(path) and listens(path) else find_embedded()


def nothing_to_connect_to() -> str:
    """What to give, for somebody who gave nothing."""
    return HELP.format(default=default_control_socket(), contexts=contexts_path())


def find_embedded() -> Target | None:
    """The engine that a console of this user runs as its own, None when there is none. Raise ConnectError
    that lists them when there are several."""
    candidates = private_directory_place().glob(EMBEDDED_SOCKETS)
    found = sorted(path for path in candidates if _is_ours(path) and listens(path))
    if len(found) > 1:
        listed = "".join(f"\n  --connect unix://{path}" for path in found)
        raise ConnectError(f"{len(found)} consoles run an engine of their own; name one:{listed}")
    return parse_url(f"unix://{found[0]}", EMBEDDED_SOURCE) if found else None


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
    return _is_own_socket(path, shut_to=0o077)


def _is_own_socket(path: Path, shut_to: int = 0o022) -> bool:
    """A socket of this user in a directory of theirs without the rights ``shut_to`` (writing: nobody else can
    put one there)."""
    try:
        directory, file = path.parent.lstat(), path.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(directory.st_mode) and not stat.S_IMODE(directory.st_mode) & shut_to
    return private and stat.S_ISSOCK(file.st_mode) and {directory.st_uid, file.st_uid} == {os.getuid()}


def _context(path: Path, name: str | None, environ: Mapping[str, str]) -> Target | None:
    """The server of the context ``name``, or of the current one; None when there is none."""
    try:
        known = read_contexts(path)
        chosen = name if name is not None else known.current
        if chosen is None:
            return None
        context = find_context(known, chosen, path)
    except ContextsError as error:
        raise ConnectError(f"--context: {error}" if name is not None else str(error)) from error
    source = f"context {chosen}"
    target = dataclasses.replace(
        parse_url(context.url, source),
        name=chosen,
        colour=context.colour,
        read_only=context.read_only,
        production=context.production,
        ca_file=None if context.ca_file is None else _at_home(context.ca_file, source),
    )
    if target.ca_file is not None:
        try:
            ssl.create_default_context(cafile=target.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(f"{source}: ca-file {target.ca_file}: {error}") from error
    try:
        token = read_token(token_file=context.token_file, token_env=context.token_env, environ=environ)
    except CredentialError as error:
        raise ConnectError(f"{source}: {error}") from error
    if token is None and context.token_file is None:
        return _with_environment(target, environ)
    return _with_token(target, token)


def _at_home(name: str, source: str) -> str:
    try:
        return str(Path(name).expanduser())
    except RuntimeError as error:  # whose home is not known
        raise ConnectError(f"{source}: ca-file {name}: {error}") from error


def _with_environment(target: Target, environ: Mapping[str, str]) -> Target:
    """The token of the environment is for servers on TCP; a unix socket knows its peers by itself."""
    if target.socket is not None or target.ssh is not None:
        return target
    try:
        return _with_token(target, token_of_environment(environ))
    except CredentialError as error:
        raise ConnectError(str(error)) from error


def _with_token(target: Target, token: str | None) -> Target:
    if token is None:
        return target
    if any(url.startswith("http://") and not _is_loopback(url) for url in target.base_urls):
        raise ConnectError(
            f"{target.source}: a token is not sent in the clear to another machine; "
            f"use https:// or ssh://, not {target.url}"
        )
    return dataclasses.replace(target, token=token)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
