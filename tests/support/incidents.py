"""A simulated fleet as a console sees it, second by second: real scheduler, real watch messages, real fold,
and the doctor at the end of it. No sockets, no waiting."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from infer_console.diagnosis.doctor import Doctor
from infer_console.state.finding import Finding
from infer_console.state.fold import ConsoleState
from infer_console.state.picture import Picture
from infer_engine.control.deltas import Deltas
from infer_engine.control.frames import STATUS_ONLY
from infer_engine.control.operations import Operations
from infer_engine.control.watch_query import Query
from infer_engine.fleet.fleet import Fleet
from infer_engine.protocol import Delta, Envelope, GatewayStatus, Status
from msgspec import structs
from support.simulated_fleet import SimulatedBench

#: A gateway of which nobody complains.
CALM = GatewayStatus(
    url="http://127.0.0.1:8000",
    connections=12,
    max_connections=2_000,
    loop_lag_s=0.002,
    loop_lag_p50_s=0.0005,
    loop_lag_p99_s=0.002,
    tokenizer_queue=0,
    max_tokenizer_queue=64,
)


@dataclass
class Source:
    """What the watch stream reads of a server."""

    fleet: Fleet
    operations: Operations
    gateway: GatewayStatus = CALM
    server_version: str = "0"
    capabilities: list[str] = field(default_factory=lambda: ["watch"])
    sequence: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def watched(self) -> Status:
        status = self.fleet.status()
        return structs.replace(status, fleet=structs.replace(status.fleet, gateway=self.gateway))


class Ward:
    """A fleet under the doctor's eyes. ``found`` has, for each second looked at, what was found then."""

    def __init__(
        self, bench: SimulatedBench, *, each_picture: Callable[[Picture], None] | None = None
    ) -> None:
        self.bench = bench
        self.source = Source(bench.fleet, Operations(bench.fleet.feed.wall, lambda _operation: None))
        self.doctor = Doctor()
        self.began_s: float | None = None
        self.found: list[tuple[float, tuple[Finding, ...]]] = []
        self._state = ConsoleState("unix:///simulated")
        self._deltas = Deltas(self.source, Query(detail=STATUS_ONLY, hz=1.0), bench.fleet.now)
        self._deltas.open()
        self._observed = self._deltas.observing()
        self._prev = 0
        self._each_picture = each_picture
        self._take(self._deltas.snapshot())

    @property
    def fleet(self) -> Fleet:
        return self.bench.fleet

    def begins(self) -> None:
        """From now on something is wrong."""
        self.began_s = self.fleet.now()

    def rules(self, within_s: float = 3_600.0) -> set[str]:
        """Rules that found something within so long after it began."""
        last_s = (self.began_s or 0.0) + within_s
        return {each.rule for at_s, found in self.found if at_s <= last_s for each in found}

    def story(self) -> str:
        """What was found when, for whoever reads a failure."""
        lines = [f"began at {self.began_s}"]
        for at_s, found in self.found:
            lines += [f"{at_s:7.1f} {each.rule} {each.replica or ''} {each.words}" for each in found]
        return "\n".join(lines[:60])

    def close(self) -> None:
        self._observed.close()
        self._deltas.close()

    async def seconds(self, count: int) -> None:
        """Let so many pass, and look at the end of each."""
        for _ in range(count):
            await asyncio.sleep(1.0)
            self.look()

    def look(self) -> Picture:
        self._take(self._deltas.changes())
        now_s = self.fleet.now()
        self._state.sample(now_s)
        picture = self._state.picture(self.fleet.feed.wall(), now_s)
        self.found.append((now_s, self.doctor.look(picture)))
        if self._each_picture is not None:
            self._each_picture(picture)
        return picture

    def _take(self, deltas: list[Delta]) -> None:
        now_s = self.fleet.now()
        for delta in deltas:
            seq = next(self.source.sequence)
            envelope = Envelope(epoch="e", seq=seq, prev=self._prev, at=self.fleet.feed.wall(), delta=delta)
            self._prev = seq
            assert self._state.fold(envelope, now_s)
