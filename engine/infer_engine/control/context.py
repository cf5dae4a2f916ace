"""What the control API knows of the server it runs in."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec import structs

from infer_engine.control.operations import Operations
from infer_engine.control.traffic import Injector
from infer_engine.fleet.fleet import Fleet
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import GatewayStatus, Status

#: What this server can do, for consoles that know more or less than it.
CAPABILITIES = [
    "watch",
    "tokens",
    "drain",
    "undrain",
    "fence",
    "release",
    "restart",
    "scale",
    "shed",
    "headroom",
    "cancel",
    "inject",
    "limits",
    "tenants",
]


@dataclass(slots=True, kw_only=True)
class Context:
    fleet: Fleet
    tokenizer: Tokenizer
    operations: Operations
    injector: Injector
    gateway_status: Callable[[], GatewayStatus]
    server_version: str
    capabilities: list[str] = field(default_factory=lambda: list(CAPABILITIES))
    #: Numbers the messages of all streams.
    sequence: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    #: Set when the server stops: every stream ends.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def status(self) -> Status:
        """The fleet's status with what only the server knows: its gateway and its test traffic."""
        status = self.fleet.status()
        fleet = structs.replace(
            status.fleet,
            version=self.server_version,
            gateway=self.gateway_status(),
            traffic=self.injector.status(),
        )
        return structs.replace(status, fleet=fleet)
