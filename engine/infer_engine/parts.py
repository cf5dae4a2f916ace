"""What a server is made of, begun and ended in the order in which one part needs the other."""

import asyncio
import time
from dataclasses import dataclass

from infer_engine.control.context import Context
from infer_engine.control.doors import Doors
from infer_engine.control.keeping import Keeping
from infer_engine.control.operations import Operations
from infer_engine.control.timed_change import TimedChanges
from infer_engine.fleet.fleet import Fleet
from infer_engine.gateway.load import GatewayLoad
from infer_engine.listener import Listener
from infer_engine.replica.virtual_clock import PacedClock
from infer_engine.stop_signal import StopSignal
from infer_engine.telemetry.mqtt import Publisher
from infer_engine.telemetry.otlp_traces import OtlpTraces


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """None is what this server does not have."""

    fleet: Fleet
    clock: PacedClock | None
    operations: Operations
    context: Context
    keeping: Keeping
    load: GatewayLoad
    publisher: Publisher | None
    traces: OtlpTraces | None
    gateway: Listener
    control: Doors

    async def start(self) -> None:
        """Clients and operators come in last, when all is there that they may ask for."""
        self.load.start()
        if self.clock is not None:
            self.clock.start()
        await self.fleet.start()
        TimedChanges(self.fleet, self.operations, time.time).resume()
        if self.publisher is not None:
            self.publisher.start()
        if self.traces is not None:
            self.traces.start()
        await self.context.audit.open()
        self.keeping.start()
        await self.gateway.start()
        await self.control.start()

    async def close(self, stop: StopSignal) -> None:
        """Also where ``start`` did not come to its end. Who watches sees the fleet empty, and hears last that
        it is over."""
        await self.operations.close()
        await self.keeping.close()
        await self.fleet.stop(stop.drain_s, hurry=stop.hurry)
        if self.clock is not None:
            await self.clock.stop()
        if self.publisher is not None:
            await self.publisher.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        self.context.stopping.set()
        await asyncio.gather(self.gateway.close(), self.control.close())
        await self.context.audit.close()
        await self.load.close()
