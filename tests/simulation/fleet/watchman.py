"""Looks at the fleet whenever something happens to a replica, and at the end at everything."""

from collections.abc import Callable

from infer_engine.core.invariants import violations
from infer_engine.fleet.drain import MIN_READY
from infer_engine.fleet.feed import FeedItem
from infer_engine.protocol import Event, Step
from simulation.fleet.server import Server
from simulation.fleet.tally import FleetTally

#: States into which a replica comes by somebody's decision.
DECIDED = frozenset({"draining", "fenced", "stopping", "restarting"})


class Watchman:
    def __init__(self, server: Server, tally: FleetTally) -> None:
        self._server = server
        self._fleet = server.fleet
        self._tally = tally
        self._ready: set[str] = set()
        self.stopping = False
        #: The first thing that did not hold; nothing may be raised where the feed is.
        self.complaint: str | None = None
        self.unsubscribe: Callable[[], None] = self._fleet.feed.subscribe(self._hear)

    def _hear(self, item: FeedItem) -> None:
        if isinstance(item, Step):
            self._tally.steps += 1
            return
        if item.kind == "move":
            self._tally.moved[str(item.reason)] += 1
        if item.kind == "replica" and item.replica is not None and not self.stopping:
            self._tally.states[str(item.reason)] += 1
            self._replica(item, item.replica)

    def _replica(self, event: Event, replica: str) -> None:
        before = self._ready
        self._ready = set(self._fleet.capacity.ready_replicas())
        lost = before - self._ready
        forced = "by force" in (event.actor or "") or (event.reason == "stopping" and self._scales_by_force())
        if replica in lost and event.reason in DECIDED and len(self._ready) < MIN_READY and not forced:
            self._complain(f"{event.reason} of {replica} by {event.actor or 'nobody'} left no ready replica")
        if event.reason == "drained":
            self._drained(replica)

    def _scales_by_force(self) -> bool:
        scale = self._server.operations.running("scale")
        return scale is not None and bool(scale.params.get("force"))

    def _drained(self, replica: str) -> None:
        machine = self._server.machines.living(replica)
        scheduler = machine.scheduler if machine is not None else None
        if scheduler is None:
            self._complain(f"{replica} is drained and does not live")
        elif scheduler.running or len(scheduler.waiting) or scheduler.pool.used:
            self._complain(f"{replica} is drained and has {scheduler.pool.used} blocks")

    def _complain(self, what: str) -> None:
        self.complaint = self.complaint or what

    def look(self) -> None:
        """Every pool is in order."""
        assert self.complaint is None, self.complaint
        for machine in self._server.machines.all_living():
            scheduler = machine.scheduler
            if scheduler is not None:
                found = violations(scheduler)
                assert not found, f"{machine.identity!r}: {'; '.join(found)}"

    def check_idle(self) -> None:
        """Nothing is left of any request, here or on a replica."""
        self.look()
        ledger = self._fleet.placement.ledger
        placer = self._fleet.placement.placer
        assert not ledger.live, f"live: {list(ledger.live)}"
        assert not placer.held, f"held: {[each.id for each in placer.held]}"
        for handle in self._fleet.members.handles.values():
            assert not ledger.on(handle.id)
            if handle.ready is not None:
                load = placer.loads.of(handle)
                left = (load.running, load.waiting, load.queued_prefill_tokens, load.kv_promised_blocks)
                assert left == (0, 0, 0, 0), f"{handle.id} is idle and counts {left}"
                assert handle.awaits_withdrawn == 0, f"{handle.id} owes its queue"
        for machine in self._server.machines.all_living():
            scheduler = machine.scheduler
            current = self._fleet.members.handles.get(machine.config.replica)
            if scheduler is None or current is None or current.identity != machine.identity:
                continue
            assert scheduler.pool.used == 0, f"{machine.identity!r} holds {scheduler.pool.used} blocks"
            assert scheduler.host.used == 0

    def _is(self, target: str) -> str:
        handle = self._fleet.members.handles.get(target.partition(":")[2])
        return "" if handle is None else f"{handle.state}, limits {handle.limits}"

    def not_in_force(self) -> list[str]:
        """What is wanted and not so, in words."""
        found: list[str] = []
        specs = self._fleet.specs
        desk = self._fleet.tenants.desk
        for target in ("fleet", *(f"replica:{each}" for each in self._fleet.replica_ids())):
            if specs.observed_generation(target) != specs.generation(target):
                found.append(f"{target}: {specs.spec(target)} is not in force: {self._is(target)}")
        for machine in self._server.machines.all_living():
            scheduler = machine.scheduler
            if scheduler is None:
                continue
            limits = scheduler.limits
            if limits.tenant_default != desk.default or dict(limits.tenants) != desk.named:
                found.append(f"{machine.identity!r}: {limits.tenant_default}, {limits.tenants}")
        return found
