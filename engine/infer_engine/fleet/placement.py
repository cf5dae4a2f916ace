"""Where requests are, and the parts that put them there: the books, the router's facts, who places, who moves
and who evens out."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.loads import Loads
from infer_engine.fleet.losses import settle_losses
from infer_engine.fleet.moving import Moving
from infer_engine.fleet.placing import Placer
from infer_engine.fleet.prefix_index import HeldPrefixes
from infer_engine.fleet.rebalancing import Rebalancing
from infer_engine.fleet.router import Policy
from infer_engine.fleet.routing import Routing
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Placement:
    ledger: Ledger
    routing: Routing
    placer: Placer
    moving: Moving
    rebalancing: Rebalancing

    def lost(self, handle: ReplicaHandle) -> None:
        """A replica is gone: its requests go on elsewhere or end, and nothing is known of its prefixes."""
        settle_losses(self.ledger, self.placer, handle)
        self.routing.forget(handle.id)


def placement(
    handles: Mapping[str, ReplicaHandle],
    ledger: Ledger,
    settings: ServerSettings,
    policy: Policy,
    pace: float,
) -> Placement:
    """All of it over the same replicas and the same books."""
    most_waiting = settings.replica.max_waiting
    loads = Loads(ledger, most_waiting)
    prefixes = HeldPrefixes() if settings.replica.prefix_cache else None
    routing = Routing(ledger, loads, prefixes, policy)
    placer = Placer(
        ledger,
        handles,
        loads,
        routing,
        most_held=most_waiting,
        alike=not settings.upstreams,
        pace=pace,
    )
    moving = Moving(handles, ledger, placer)
    rebalancing = Rebalancing(handles, ledger, placer, moving, routing)
    return Placement(ledger, routing, placer, moving, rebalancing)
