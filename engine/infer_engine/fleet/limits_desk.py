"""The limits that replicas go by, headroom among them: as they are, and moving them on an operator's word."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet import headroom, live_limits
from infer_engine.fleet.live_limits import Moves
from infer_engine.protocol import ChangeLimits, Effect, LiveLimits, SetHeadroom
from infer_engine.replica.handle import ReplicaHandle


@dataclass(frozen=True, slots=True)
class LimitsDesk:
    """Refusal for what does not fit, or when a replica did not obey."""

    handles: Mapping[str, ReplicaHandle]

    def now(self) -> LiveLimits:
        return LiveLimits(replicas={each.id: dict(each.limits) for each in self.handles.values()})

    def predict(self, command: ChangeLimits) -> Effect:
        return live_limits.predict(self.handles, command)

    async def change(self, command: ChangeLimits) -> Moves:
        """Old and new values by replica and name."""
        return await live_limits.apply(self.handles, command)

    def predict_headroom(self, command: SetHeadroom) -> Effect:
        return headroom.predict(self.handles, command)

    async def set_headroom(self, command: SetHeadroom) -> dict[str, tuple[int, int]]:
        """Old and new limit, in blocks, of each replica that moved its mark."""
        return await headroom.apply(self.handles, command)
