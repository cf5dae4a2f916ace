"""Pausing the batch tier everywhere: what that will do, and doing it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infer_engine.fleet.beginning import Wanted
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.outlook_desk import OutlookDesk
from infer_engine.fleet.outlook_words import extended, of_tier
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import Effect, Shed, TenantLimits
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import SetShed


@dataclass(slots=True)
class Shedding:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    wanted: Wanted
    outlook: OutlookDesk
    limits: Callable[[str], TenantLimits]

    def predict(self, command: Shed) -> Effect:
        batch = self.batch()
        running = [request for request in batch if request.state == "running"]
        blocks = sum(request.blocks for request in running)
        numbers: dict[str, float | None] = {
            "running": float(len(running)),
            "waiting": float(len(batch) - len(running)),
            "blocks": float(blocks),
        }
        if command.on == self.wanted.shed:
            summary = [f"batch is {'shed' if command.on else 'not shed'} already: nothing will change"]
        elif command.on:
            summary = [
                f"{len(running)} running batch requests are preempted by the next step:"
                f" {blocks:,} blocks free",
                f"{len(batch)} batch requests wait until shed is taken off; new ones queue behind them",
                "interactive requests are admitted as before, with more room",
            ]
        else:
            summary = [f"{len(batch)} batch requests that wait are admitted again as there is room"]
        effect = Effect(summary=summary, numbers=numbers)
        if command.on == self.wanted.shed:
            return effect
        minute = self.outlook.next_minute(self.limits, shed=command.on)
        return extended(effect, *of_tier(minute, "interactive"))

    def apply(self, command: Shed) -> None:
        """From each replica's next step on."""
        if command.on == self.wanted.shed:
            return
        self.wanted.shed = command.on
        now_s = self.ledger.clock()
        for handle in self.handles.values():
            handle.shed = command.on
            if handle.ready is not None:
                handle.tell(SetShed(on=command.on))
            if self.ledger.on(handle.id):
                handle.work_since_s = now_s  # what it waited for until now was no work

    def left(self) -> int:
        """Batch requests that run though they are shed, as far as replicas have told."""
        return sum(request.state == "running" for request in self.batch()) if self.wanted.shed else 0

    def batch(self) -> list[Tracked]:
        return [each for each in self.ledger.live.values() if each.generation.spec.tier == "batch"]
