"""Fleets that a broker knows of: from the messages that it retains, nothing is sent to any fleet.

Topics and payloads: docs/telemetry.md. Whoever may write to the broker writes here: sizes and numbers are
bounded, and what cannot be read is passed over.
"""

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiomqtt
import msgspec

from infer_console.discovery.found import DiscoverError, Found, Liveness

ROOT = "infer/v1"
PORTS = {"mqtt": 1883, "mqtts": 8883}
CONNECT_S = 5.0
#: Retained messages come at once after subscribing; nothing more for so long means that those were all.
QUIET_S = 0.5
LONGEST_S = 5.0
MOST_MESSAGES = 20_000
MOST_FLEETS = 1_000
MOST_BYTES = 65_536
#: Replicas' states that take requests, or could.
READY = "ready"


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    host: str
    port: int
    tls: bool
    user: str | None
    #: Of this fleet only; None for all.
    fleet: str | None


class _State(msgspec.Struct):
    state: str
    incarnation: int = 0


class _Info(msgspec.Struct):
    incarnation: int = 0
    name: str | None = None
    model: str | None = None
    version: str | None = None
    simulated: bool | None = None
    gateway: str | None = None
    control: str | None = None
    replicas: int | None = None


@dataclass(slots=True)
class _Fleet:
    state: _State | None = None
    info: _Info | None = None
    replicas: dict[str, str] = field(default_factory=dict[str, str])


def parse_broker_url(given: str) -> BrokerUrl:
    """``mqtt[s]://[USER@]HOST[:PORT][/FLEET]``; DiscoverError saying what does not fit."""
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError as error:
        raise DiscoverError(f"{given!a}: {error}") from error
    if parts.password is not None:
        raise DiscoverError("a URL is no place for a secret; use --mqtt-password-file")
    fleet = parts.path.strip("/") or None
    fits = fleet is None or re.fullmatch(r"[a-z0-9-]{1,64}", fleet)
    if parts.scheme not in PORTS or not parts.hostname or not fits or parts.query or parts.fragment:
        raise DiscoverError(f"{given!a} is not mqtt://[USER@]HOST[:PORT][/FLEET], or mqtts:// for TLS")
    tls = parts.scheme == "mqtts"
    return BrokerUrl(parts.hostname, port or PORTS[parts.scheme], tls, parts.username or None, fleet)


async def find_at_broker(
    url: BrokerUrl, *, password: str | None = None, ca_file: str | None = None
) -> list[Found]:
    """In the order of their names. DiscoverError when the broker cannot be asked."""
    tls = None
    if url.tls:
        try:
            tls = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise DiscoverError(f"--mqtt-ca {ca_file}: {error}") from error
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
    fleets: dict[str, _Fleet] = {}
    try:
        async with aiomqtt.Client(
            url.host,
            url.port,
            username=url.user,
            password=password,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=True,
            timeout=CONNECT_S,
            tls_context=tls,
            max_queued_incoming_messages=1_000,
        ) as client:
            await _listen(client, url.fleet or "+", fleets)
    except (aiomqtt.MqttError, OSError, ValueError) as error:
        raise DiscoverError(f"mqtt broker {url.host}:{url.port}: {error}") from error
    return [_found(url, topic, fleets[topic]) for topic in sorted(fleets)]


async def _listen(client: aiomqtt.Client, fleet: str, fleets: dict[str, _Fleet]) -> None:
    for topic in ("status", "info", "+/status"):
        await client.subscribe(f"{ROOT}/{fleet}/{topic}", qos=1)
    messages = aiter(client.messages)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_S):
            for _ in range(MOST_MESSAGES):
                async with asyncio.timeout(QUIET_S):
                    message = await anext(messages)
                if len(message.payload) <= MOST_BYTES:
                    _take(fleets, str(message.topic), message.payload)


def _take(fleets: dict[str, _Fleet], topic: str, payload: bytes) -> None:
    levels = topic.split("/")[2:]
    if levels[0] not in fleets and len(fleets) >= MOST_FLEETS:
        return
    known = fleets.setdefault(levels[0], _Fleet())
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        match levels[1:]:
            case ["status"]:
                known.state = msgspec.json.decode(payload, type=_State)
            case ["info"]:
                known.info = msgspec.json.decode(payload, type=_Info)
            case [replica, "status"]:
                known.replicas[replica] = msgspec.json.decode(payload, type=_State).state
            case _:
                pass


def _found(url: BrokerUrl, topic: str, fleet: _Fleet) -> Found:
    info = fleet.info or _Info()
    state: Liveness = "unknown"
    if fleet.state is not None:
        # A will that overtook a rebirth is not about this life.
        late = fleet.state.incarnation < info.incarnation
        state = "offline" if fleet.state.state == "offline" and not late else "online"
    online = state == "online"
    return Found(
        where=f"mqtt {url.host}:{url.port}/{topic}",
        state=state,
        url=info.control,
        gateway=info.gateway,
        name=info.name or topic,
        model=info.model,
        version=info.version,
        simulated=info.simulated,
        replicas=info.replicas if not (online and fleet.replicas) else len(fleet.replicas),
        ready=sum(state == READY for state in fleet.replicas.values()) if online and fleet.replicas else None,
        why=None if info.control else "it does not say where operators reach it; see --control-listen",
    )
