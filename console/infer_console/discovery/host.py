"""Engine servers on this machine: by their sockets, by their processes' settings, and by the contexts
file."""

import asyncio
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from infer_engine.settings import default_control_socket

from infer_console.connect import (
    EMBEDDED_SOCKETS,
    ConnectError,
    Target,
    parse_url,
    private_directory_place,
    resolve,
)
from infer_console.contexts import ContextsError, contexts_path, read_contexts
from infer_console.discovery.found import Found
from infer_console.sources.client import EngineClient
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError

PROC = Path("/proc")
#: So many are asked, and so many at once.
MOST_CANDIDATES = 256
AT_ONCE = 16
PATIENCE_S = 3.0
#: What is read of a command line.
MOST_BYTES = 65_536


class _Settings(msgspec.Struct):
    """What of a server's settings says where it listens."""

    control: str | None = None
    control_listen: str | None = None
    tls_cert: str | None = None


async def find_on_host(proc: Path = PROC) -> list[Found]:
    """Those that answer, and those that are there and do not let the caller in; a socket that nobody listens
    on is nothing."""
    candidates: dict[str, tuple[str, Target]] = {}
    for where, target in _candidates(proc):
        candidates.setdefault(target.url, (where, target))
    turn = asyncio.Semaphore(AT_ONCE)
    asked = [_ask(*each, turn) for each in list(candidates.values())[:MOST_CANDIDATES]]
    return [found for found in await asyncio.gather(*asked) if found is not None]


def _candidates(proc: Path) -> Iterator[tuple[str, Target]]:
    for where, pattern, place in (
        ("socket", "*.sock", Path(urlsplit(default_control_socket()).path).parent),
        ("embedded", EMBEDDED_SOCKETS, private_directory_place()),
    ):
        for path in sorted(place.glob(pattern)):
            if _is_socket(path) and (target := _target(f"unix://{path}")) is not None:
                yield where, target
    for settings, mine in _servers(proc):
        for url in (settings.control, _tcp_url(settings)):
            if url is not None and (target := _target(url, trusted=mine)) is not None:
                yield "process", target
    yield from _of_contexts()


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _target(url: str, *, trusted: bool = True) -> Target | None:
    """As if it were given, with the environment's token where it is on TCP. Where anybody may have named it
    it gets no token, and has to be on this machine. None where that does not fit."""
    try:
        if url.startswith("unix:"):
            return parse_url(url)
        if trusted:
            return resolve([url])
        target = parse_url(url)
        return target if _is_here(target) else None
    except ConnectError:
        return None


def _servers(proc: Path) -> Iterator[tuple[_Settings, bool]]:
    """The settings of the server processes whose command lines may be read, and whether they are this user's:
    anybody can run something that is called like a server."""
    for directory in sorted(proc.glob("[0-9]*")):
        try:
            mine = directory.stat().st_uid == os.getuid()
            with (directory / "cmdline").open("rb") as file:
                words = file.read(MOST_BYTES).split(b"\0")
        except OSError:
            continue  # it ended, or is somebody else's
        if b"infer_engine" not in words or b"serve" not in words or b"--settings" not in words[:-1]:
            continue
        try:
            yield msgspec.json.decode(words[words.index(b"--settings") + 1], type=_Settings), mine
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def _tcp_url(settings: _Settings) -> str | None:
    """Where its second control listener is reached from here; None where the system chose its port."""
    host, _, port = (settings.control_listen or "").rpartition(":")
    if not port.isdigit() or int(port) == 0:
        return None
    if host in ("", "0.0.0.0", "[::]", "::"):
        host = "127.0.0.1"
    return f"{'http' if settings.tls_cert is None else 'https'}://{host}:{port}"


def _of_contexts(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, Target]]:
    """Servers on this machine that the contexts file names."""
    path = contexts_path()
    try:
        names = list(read_contexts(path).contexts)
    except ContextsError:
        return
    for name in names:
        try:
            target = resolve([], {}, path, name)
        except ConnectError:
            continue
        if target is not None and _is_here(target):
            yield f"context {name}", target


def _is_here(target: Target) -> bool:
    return target.socket is not None or urlsplit(target.url).hostname in ("localhost", "127.0.0.1", "::1")


async def _ask(where: str, target: Target, turn: asyncio.Semaphore) -> Found | None:
    async with turn:
        try:
            async with asyncio.timeout(PATIENCE_S), EngineClient(target) as client:
                hello = await client.hello()
                status = await client.state()
        except UnreachableError as error:
            return Found(where=where, state="unknown", url=target.url, why=str(error)) if error.sent else None
        except TimeoutError:
            why = f"no answer within {PATIENCE_S:g} s"
            return Found(where=where, state="unknown", url=target.url, why=why)
        except RefusedError as refused:
            return Found(where=where, state="refused", url=target.url, why=refused.problem.title)
        except NotUnderstoodError as error:
            return Found(where=where, state="unknown", url=target.url, why=str(error))
    return Found(
        where=where,
        state="online",
        url=target.url,
        gateway=hello.fleet.gateway.url,
        name=hello.fleet.name,
        model=hello.fleet.model,
        version=hello.server_version,
        simulated=hello.fleet.simulated,
        replicas=len(status.replicas),
        ready=status.totals.ready,
    )
