"""The end of all requests when the server stops: those that may finish do, the rest are cancelled."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet.cancelling import cancel
from infer_engine.fleet.endings import end_as_intended
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.tracked import Intent
from infer_engine.replica.handle import ReplicaHandle

#: How long cancelled requests get to end when the server stops.
CANCEL_GRACE_S = 1.0
#: How often a stop that waits for requests looks whether it should hurry.
HURRY_POLL_S = 0.1
INTENT = Intent("cancelled", "shutting_down", "")


@dataclass(frozen=True, slots=True)
class Stopping:
    ledger: Ledger
    placer: Placer
    handles: Mapping[str, ReplicaHandle]
    pace: float

    async def empty(self, drain_s: float, hurry: asyncio.Event | None) -> None:
        """Let what runs finish for ``drain_s`` at most and until ``hurry`` is set, cancel the rest."""
        await self._until_idle(drain_s, hurry)
        for request in list(self.ledger.live.values()):
            cancel(self.ledger, self.placer, self.handles, request.id, INTENT)
        hurried = hurry is not None and hurry.is_set()
        await self._until_idle(CANCEL_GRACE_S if drain_s and not hurried else 0.0)

    def end_left(self) -> None:
        """End what no replica has ended; there are none any more."""
        for request in list(self.ledger.live.values()):
            request.intent = request.intent or INTENT
            end_as_intended(self.ledger, request)

    async def _until_idle(self, within_s: float, hurry: asyncio.Event | None = None) -> None:
        """Wait until no request is live; each ends on its own, so there is nothing else to wait on."""
        clock = self.ledger.clock
        deadline_s = clock() + within_s * self.pace
        for generation in [request.generation for request in self.ledger.live.values()]:
            while not generation.finished and clock() < deadline_s:
                if hurry is not None and hurry.is_set():
                    return
                left_s = (deadline_s - clock()) / self.pace
                await generation.beyond(len(generation.emitted), min(left_s, HURRY_POLL_S))
