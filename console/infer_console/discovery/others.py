"""Servers that are not ours: on this machine by the ports that are listened on, and behind a DNS name."""

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path

from infer_engine.foreign.kind import ForeignKind

from infer_console.connect import ConnectError, Target, parse_url
from infer_console.discovery.found import DiscoverError, Found
from infer_console.sources.client import EngineClient
from infer_console.sources.engine import describe
from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError
from infer_console.watched import netloc

#: Ports asked, and so many at once.
MOST_PORTS, AT_ONCE = 128, 16
#: For so long is waited for the first bytes of an answer, which show whether it is HTTP; then for all of it.
FIRST_BYTES_S, ANSWER_S = 1.0, 4.0
MOST_LINES = 4_096
#: Ports whose servers are known not to speak HTTP, and log what they do not understand.
NOT_HTTP = frozenset({22, 25, 53, 111, 139, 445, 631, 1883, 2181, 3306, 5432, 5672, 6379, 8883, 11211, 27017})
KINDS: dict[str, ForeignKind] = {"vLLM": "vllm", "SGLang": "sglang", "llama.cpp": "llamacpp"}
_LISTENING = "0A"
_PROBE = "GET /v1/models HTTP/1.1\r\nhost: {netloc}\r\nconnection: close\r\n\r\n"


async def find_others_on_host(proc: Path) -> list[Found]:
    """Those that answer as vLLM, SGLang or llama.cpp do. Nothing but GETs is sent, and no token."""
    turn = asyncio.Semaphore(AT_ONCE)
    places = list(dict.fromkeys(_listened(proc)))[:MOST_PORTS]
    found = await asyncio.gather(*(_ask(host, port, turn) for host, port in places))
    return [each for each in found if each is not None]


def _listened(proc: Path) -> Iterator[tuple[str, int]]:
    """Where somebody listens that this machine reaches by a loopback address."""
    seen: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            with (proc / "net" / name).open(encoding="ascii", errors="replace") as file:
                lines = [line.split() for line, _ in zip(file, range(MOST_LINES), strict=False)]
        except OSError:
            continue  # no such thing here
        for words in lines:
            if len(words) < 4 or words[3] != _LISTENING:
                continue
            place = _place(words[1])
            if place is None or place[1] in NOT_HTTP or place[1] in seen:
                continue
            seen.add(place[1])
            yield place


def _place(told: str) -> tuple[str, int] | None:
    """An address as the kernel writes it: words of four bytes, each in the machine's order."""
    address, _, port = told.partition(":")
    try:
        number = int(port, 16)
        words = [bytes.fromhex(address[index : index + 8])[::-1] for index in range(0, len(address), 8)]
        host = ipaddress.ip_address(b"".join(words))
    except ValueError:
        return None
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    host = mapped or host
    if host.is_unspecified:  # also reached by IPv4, in most cases
        return "127.0.0.1", number
    return (str(host), number) if host.is_loopback else None


async def _ask(host: str, port: int, turn: asyncio.Semaphore) -> Found | None:
    where = netloc(host, port)
    async with turn:
        if not await _speaks_http(host, port):
            return None
        try:
            async with asyncio.timeout(ANSWER_S), EngineClient(parse_url(f"auto+http://{where}")) as client:
                hello = await client.hello()
        except (TimeoutError, UnreachableError, RefusedError, NotUnderstoodError):
            return None  # whatever it is, it is not known to be one of them
    product = (hello.fleet.version or "").partition(" ")[0]
    kind = KINDS.get(product)
    return Found(
        where=f"port {port}",
        state="online",
        url=f"{kind or 'auto'}+http://{where}",
        gateway=f"http://{where}",
        name=hello.fleet.name,
        model=hello.fleet.model,
        version=hello.fleet.version,
        simulated=False,
    )


async def _speaks_http(host: str, port: int) -> bool:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(FIRST_BYTES_S):
            reader, writer = await asyncio.open_connection(host, port, limit=4_096)
            writer.write(_PROBE.format(netloc=netloc(host, port)).encode())
            return (await reader.readexactly(5)) == b"HTTP/"
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(FIRST_BYTES_S):
                    await writer.wait_closed()


async def find_behind_name(url: str) -> list[Found]:
    """The fleet that ``dns+vllm://NAME:PORT`` is, and each server in it. DiscoverError where none is."""
    target = parse_name(url)
    try:
        async with EngineClient(target) as client:
            status = await client.state()
    except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
        raise DiscoverError(f"{target.url}: {describe(failure)}") from failure
    fleet, where = status.fleet, f"dns {target.watched[0].host}"
    found = [
        Found(
            where=where,
            state="online",
            url=target.url,
            name=fleet.name,
            model=fleet.model,
            version=fleet.version,
            simulated=False,
            replicas=len(status.replicas),
            ready=status.totals.ready,
        )
    ]
    for each in dict.fromkeys(replica.watched_url for replica in status.replicas):
        rows = [replica for replica in status.replicas if replica.watched_url == each]
        lost = [row.error for row in rows if row.state == "failed"]
        found.append(
            Found(
                where=where,
                state="unknown" if lost else "online",
                url=each,
                name=rows[0].id,
                model=None if lost else fleet.model,
                version=rows[0].foreign,
                simulated=False,
                replicas=len(rows),
                ready=sum(row.state == "ready" for row in rows),
                why=lost[0] if lost else None,
            )
        )
    return found


def parse_name(url: str) -> Target:
    """DiscoverError saying what does not fit."""
    try:
        target = parse_url(url, "discover")
    except ConnectError as error:
        raise DiscoverError(str(error)) from error
    if len(target.watched) != 1 or not target.watched[0].dns:
        raise DiscoverError(f"{url!a} is not dns+vllm://NAME:PORT, dns+sglang:// or dns+llamacpp://")
    return target
