"""What the control API knows of the server it runs in."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import structs
from starlette.types import Scope

from infer_engine.control.history import HistoryKeeper
from infer_engine.control.operations import Operations
from infer_engine.control.recorder import Recorder
from infer_engine.control.traffic import Injector
from infer_engine.fleet.fleet import Fleet
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import GatewayStatus, Status

#: What this server can do, for consoles that know more or less than it.
CAPABILITIES = [
    "watch",
    "resume",
    "tokens",
    "timeline",
    "history",
    "recorder",
    "drain",
    "undrain",
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
    #: Told before a token tap opens, with the caller's scope and the requests; a Refusal that it raises keeps
    #: the tap shut.
    content_read: Callable[[Scope, Sequence[str]], None] | None = None
    #: None where nothing records.
    recorder: Recorder | None = None
    history: HistoryKeeper | None = None

    def status(self) -> Status:
        """The fleet's status with what only the server knows: its gateway and its test traffic."""
        status = self.fleet.status()
        fleet = structs.replace(
            status.fleet,
            version=self.server_version,
            gateway=self.gateway_status(),
            traffic=self.injector.status(),
            recorder=self.recorder.status() if self.recorder is not None else None,
        )
        return structs.replace(status, fleet=fleet)
