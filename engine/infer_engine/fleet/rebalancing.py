"""Having requests that wait go to where they would run sooner: facts for the decision in ``rebalance``, and
doing what it says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infer_engine.fleet.health import health
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.moving import Moving
from infer_engine.fleet.pacing import Leaver
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.rebalance import Rebalance, Waiting, rebalance
from infer_engine.fleet.router import Load
from infer_engine.fleet.routing import Routing
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Release

#: What a request waits for that another replica would not spare it, as far as is known: its tenant's share.
WAITS_ANYWHERE = frozenset({"tenant"})


@dataclass(slots=True)
class Rebalancing:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    placer: Placer
    moving: Moving
    routing: Routing

    def tick(self) -> None:
        """To be called now and then. Costs next to nothing while nobody waits beside room."""
        loads = dict(self._loads())
        if not any(load.waiting for load in loads.values()) or all(load.waiting for load in loads.values()):
            return
        waiting = [each for replica, load in loads.items() if load.waiting for each in self._waiting(replica)]
        if not waiting:
            return
        by_source: dict[str, list[str]] = {}
        for move in rebalance(waiting, loads, self.moving.rooms()):
            self._departs(move)
            by_source.setdefault(move.waiting.source, []).append(move.waiting.leaver.id)
        for source, ids in by_source.items():
            self.handles[source].tell(Release(ids=ids, only_waiting=True))

    # --- inside --------------------------------------------------------------------------------------------

    def _departs(self, move: Rebalance) -> None:
        request = self.ledger.live[move.waiting.leaver.id]
        request.rebalanced += 1
        request.departs(
            move.waiting.source,
            "rebalanced",
            to=move.to,
            note=f"nobody waits there: about {move.sooner_steps:.0f} steps sooner",
        )

    def _loads(self) -> Iterator[tuple[str, Load]]:
        """Of the replicas that take requests and step."""
        now_s = self.ledger.clock()
        for handle in self.handles.values():
            work = self.ledger.has_any(handle.id)
            if handle.admits and health(handle, now_s, has_work=work) in ("ok", "idle"):
                yield handle.id, self.placer.loads.of(handle)

    def _waiting(self, replica: str) -> Iterator[Waiting]:
        handle, now_s = self.handles[replica], self.ledger.clock()
        block_size = handle.info.block_size if handle.info is not None else 1
        for request in self.ledger.on(replica):
            if not self._may_go(request, handle):
                continue
            generation = request.generation
            since_s = max(request.waiting_since_s, request.placed_s)
            yield Waiting(
                source=replica,
                leaver=Leaver(
                    id=request.id,
                    tier=generation.spec.tier,
                    arrived_s=generation.arrived_s,
                    tokens=request.known_tokens,
                    blocks=request.needs_blocks(block_size),
                ),
                settled_s=(now_s - since_s) / handle.pace,
                moved=request.rebalanced,
                held_tokens=self.routing.held_tokens(request, self.handles),
            )

    def _may_go(self, request: Tracked, handle: ReplicaHandle) -> bool:
        """It waits, for something that it would not have to wait for elsewhere, and nobody else decided on
        it."""
        if request.state != "waiting" or request.departure is not None or request.intent is not None:
            return False
        if request.swapped or (request.core is not None and request.core.waiting_reason in WAITS_ANYWHERE):
            return False
        if handle.shed and request.generation.spec.tier == "batch":
            return False
        parent = self.ledger.live.get(request.generation.spec.fork_of or "")
        return parent is None or parent.generation.replica != handle.id
