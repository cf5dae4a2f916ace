"""Where the MQTT broker is and under which topics a fleet speaks: text in, checked values out."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

#: Of every topic; the number goes up when payloads change in a way that readers notice.
ROOT = "infer/v1"
PORTS = {"mqtt": 1883, "mqtts": 8883}
MAX_FLEET_CHARS = 64


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    host: str
    port: int
    tls: bool
    user: str | None


def parse_broker(url: str) -> BrokerAddress:
    """``mqtt://[USER@]HOST[:PORT]``, or ``mqtts://`` for TLS. ValueError saying what does not fit; a password
    is refused there, since command lines are for everybody to read."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"mqtt: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("mqtt: expected mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS")
    if parts.password is not None:
        raise ValueError("mqtt: a password does not belong in a URL; put it into a file (mqtt_password_file)")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("mqtt: nothing may follow the host and port; topics begin with the fleet's name")
    return BrokerAddress(
        parts.hostname, port or PORTS[parts.scheme], parts.scheme == "mqtts", parts.username or None
    )


def topic_name(name: str) -> str:
    """A fleet's or replica's name as one level of a topic: ``[a-z0-9-]``, so that no name reaches into
    others' topics or holds a wildcard."""
    level = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:MAX_FLEET_CHARS]
    return level or "fleet"
