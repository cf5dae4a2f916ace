"""Servers that are not ours, as they are named: one, several as one fleet, or all behind a DNS name."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from infer_engine.foreign.kind import ForeignKind

#: dcgm is no server but NVIDIA's exporter of GPU metrics beside some.
WatchedKind = ForeignKind | Literal["dcgm"]
#: Of one fleet, those behind DNS names included.
MOST_SERVERS = 64
#: GPUs of one server.
MOST_GPUS = 64

_KINDS = ("vllm", "sglang", "llamacpp", "auto", "dcgm")
#: ``vllm+http``, ``dns+vllm`` (which is HTTP), ``dns+vllm+https``.
_SCHEME = re.compile(rf"(?P<dns>dns\+)?(?P<kind>{'|'.join(_KINDS)})(?:\+(?P<http>https?))?")
_GPU = re.compile(r"\d{1,3}|(?:GPU|MIG)-[0-9A-Za-z-]{1,60}")
_WHOLE_HOST = 64


@dataclass(frozen=True, slots=True)
class Pace:
    """How often is asked; every wait of watching other servers is made of these, in seconds."""

    #: Metrics.
    look_s: float = 1.0
    #: Documents that never change while a server lives.
    seldom_s: float = 30.0
    #: Addresses behind a DNS name: how long they may be kept is not told to us.
    resolve_s: float = 30.0
    resolve_timeout_s: float = 5.0
    #: Of several servers, how long the others' figures wait for one that answers late.
    grace_s: float = 0.5
    #: The exporter of GPU metrics, which reads the GPUs that seldom itself.
    gpus_s: float = 5.0


DEFAULT_PACE = Pace()


@dataclass(frozen=True, slots=True)
class Watched:
    """One entry of what is watched together."""

    kind: WatchedKind
    tls: bool
    #: Without brackets.
    host: str
    port: int | None = None
    #: Every address behind ``host`` is a server of its own.
    dns: bool = False
    #: Which of its machine's GPUs are this server's: numbers or UUIDs; empty where nobody said.
    gpus: tuple[str, ...] = ()

    @property
    def netloc(self) -> str:
        return netloc(self.host, self.port)

    @property
    def scheme(self) -> str:
        if self.dns:
            return f"dns+{self.kind}{'+https' if self.tls else ''}"
        return f"{self.kind}+{'https' if self.tls else 'http'}"

    @property
    def url(self) -> str:
        """As it may be given again."""
        return f"{self.scheme}://{self.netloc}{self._fragment}"

    @property
    def _fragment(self) -> str:
        return f"#gpu={'+'.join(self.gpus)}" if self.gpus else ""

    def base_url(self, address: str | None = None) -> str:
        """What HTTP requests go to; ``address`` is one of those behind a name."""
        where = self.netloc if address is None else netloc(address, self.port)
        return f"{'https' if self.tls else 'http'}://{where}"

    def short(self, before: "Watched | None") -> str:
        """As an entry behind ``before``, whose scheme it need not repeat."""
        if before is not None and before.scheme == self.scheme:
            return f"{self.netloc}{self._fragment}"
        return self.url


def netloc(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def is_watched(url: str) -> bool:
    """Whether it begins as a server that is not ours does."""
    return _SCHEME.fullmatch(url.partition("://")[0].lower()) is not None


def parse_watched(given: str) -> tuple[Watched, ...]:
    """``vllm+http://a:8000,b:8000,sglang+http://c:30000``: an entry without a scheme has that of the one
    before it. ValueError says what does not fit."""
    found: list[Watched] = []
    scheme = ""
    for piece in given.split(","):
        before, mark, rest = piece.strip().rpartition("://")
        scheme = before.lower() if mark else scheme
        each = _parse(given, scheme, rest)
        if not any((each.host, each.port) == (other.host, other.port) for other in found):
            found.append(each)
    if len(found) > MOST_SERVERS:
        raise ValueError(f"{len(found)} servers were given, allowed are up to {MOST_SERVERS}")
    if all(each.kind == "dcgm" for each in found):
        raise ValueError(f"{given!r} is the exporter of GPU metrics; name the servers on its machine too")
    return tuple(found)


def _parse(given: str, scheme: str, rest: str) -> Watched:
    fits = _SCHEME.fullmatch(scheme)
    if fits is None or (fits["http"] is None and fits["dns"] is None):
        raise ValueError(
            f"{given!r}: together are watched only vllm+http://, sglang+http://, llamacpp+http://,"
            " auto+http://, the same with https, dns+vllm:// and its like, and dcgm+http://"
        )
    parts = urlsplit(f"http://{rest}")
    port = parts.port  # ValueError where it is none
    if parts.username is not None:
        raise ValueError("a URL is no place for a secret; use the server's token file")
    gpus = _gpus(given, parts.fragment)
    if not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{given!r} is not {scheme}://HOST:PORT")
    return Watched(
        kind=cast(WatchedKind, fits["kind"]),
        tls=fits["http"] == "https",
        host=parts.hostname,
        port=port,
        dns=fits["dns"] is not None,
        gpus=gpus,
    )


def _gpus(given: str, fragment: str) -> tuple[str, ...]:
    if not fragment:
        return ()
    name, _, value = fragment.partition("=")
    gpus = tuple(dict.fromkeys(value.split("+")))
    if name != "gpu" or len(gpus) > MOST_GPUS or not all(_GPU.fullmatch(each) for each in gpus):
        raise ValueError(f"{given!r}: behind # only gpu=0+1 may stand: numbers or UUIDs of its GPUs")
    return gpus


def joined(servers: Sequence[Watched]) -> str:
    """The URL that names them all."""
    befores = (None, *servers)
    return ",".join(each.short(before) for each, before in zip(servers, befores, strict=False))


def row_names(servers: Sequence[Watched]) -> list[str]:
    """A name for each of them, short, and the same as long as the same servers are named: the first label of
    its host where that is enough, the port where the host has several."""
    hosts = [each.host for each in servers]
    labels = {host: _label(host) for host in hosts}
    named: list[str] = []
    for each in servers:
        label = labels[each.host]
        if any(other != each.host and labels[other] == label for other in hosts):
            label = each.host
        label = label[:_WHOLE_HOST]
        named.append(label if hosts.count(each.host) == 1 else netloc(label, each.port or default_port(each)))
    return named


def default_port(server: Watched) -> int:
    return 443 if server.tls else 80


def _label(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.partition(".")[0]
    return host
