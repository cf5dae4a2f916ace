"""What the control API knows of the server it runs in."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec import structs

from infer_engine.control.audit import Audit
from infer_engine.control.history import HistoryKeeper
from infer_engine.control.idempotency import Idempotency
from infer_engine.control.leases import Leases
from infer_engine.control.operations import Operations
from infer_engine.control.presence import Presence
from infer_engine.control.recorder import Recorder
from infer_engine.control.traffic import Injector
from infer_engine.control.versions import Versions
from infer_engine.fleet.fleet import Fleet
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import GatewayStatus, Status

#: What this server can do, for consoles that know more or less than it.
CAPABILITIES = [
    "watch",
    "resume",
    "tokens",
    "tokenize",
    "token_times",
    "timeline",
    "history",
    "recorder",
    "timelines",
    "drain",
    "undrain",
    "fence",
    "release",
    "restart",
    "scale",
    "shed",
    "headroom",
    "cancel",
    "cancel_where",
    "preempt",
    "inject",
    "limits",
    "tenants",
    "leases",
    "audit",
]


@dataclass(slots=True, kw_only=True)
class Context:
    fleet: Fleet
    tokenizer: Tokenizer
    operations: Operations
    injector: Injector
    gateway_status: Callable[[], GatewayStatus]
    server_version: str
    audit: Audit
    presence: Presence = field(default_factory=Presence)
    capabilities: list[str] = field(default_factory=lambda: list(CAPABILITIES))
    #: Numbers the messages of all streams.
    sequence: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    keys: Idempotency = field(default_factory=lambda: Idempotency(time.monotonic))
    leases: Leases = field(default_factory=lambda: Leases(time.time, time.monotonic))
    #: Set when the server stops: every stream ends.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: None where nothing records.
    recorder: Recorder | None = None
    history: HistoryKeeper | None = None

    def versions(self) -> Versions:
        """Of what is wanted of the fleet, its replicas and its tenants."""
        return Versions(self.fleet.specs.version, self.fleet.replica_ids)

    def status(self) -> Status:
        """The fleet's status with what only the server knows: its gateway and its test traffic."""
        return self._whole(self.fleet.status())

    def watched(self) -> Status:
        """The same for those who ask all the time; of a large fleet it may be a moment old."""
        return self._whole(self.fleet.board.status())

    def _whole(self, status: Status) -> Status:
        fleet = structs.replace(
            status.fleet,
            version=self.server_version,
            gateway=self.gateway_status(),
            traffic=self.injector.status(),
            recorder=self.recorder.status() if self.recorder is not None else None,
            attached=self.presence.named(),
            attached_more=self.presence.more(),
            lease=self.leases.holder(),
        )
        return structs.replace(status, fleet=fleet)
