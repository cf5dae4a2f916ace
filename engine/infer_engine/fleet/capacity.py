"""What the replicas that take requests can do, all of them together."""

from collections.abc import Mapping
from dataclasses import dataclass

from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.measures import Measures, itl_figures
from infer_engine.fleet.outlook import StepTime
from infer_engine.fleet.step_time import step_time
from infer_engine.protocol import Tier
from infer_engine.replica.handle import ReplicaHandle
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ServerSettings

#: Up to which a tier is admitted: batch never further than interactive.
MARKS: dict[Tier, tuple[str, ...]] = {
    "interactive": ("admit_limit",),
    "batch": ("admit_limit", "batch_limit"),
}


@dataclass(frozen=True, slots=True)
class Capacity:
    settings: ServerSettings
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    measures: Measures

    def ready_replicas(self) -> list[str]:
        return [handle.id for handle in self.handles.values() if handle.admits]

    def runners(self) -> list[RunnerInfo]:
        """What the replicas that take requests told of themselves."""
        return [handle.info for handle in self.handles.values() if handle.admits and handle.info is not None]

    def context_length(self) -> int | None:
        """The longest that an upstream has told; None before one has, and where there are none."""
        if not self.settings.upstreams:
            return None
        return max((each.info.context_length for each in self.handles.values() if each.info), default=None)

    def step_time(self) -> StepTime | None:
        """How long a step takes them, by how many tokens it computes."""
        now_s = self.ledger.clock()
        itl_s = itl_figures([part.itl for part in self.measures.of.values()], now_s).p50
        return step_time(self.settings.deployment, self.runners(), itl_s)

    def kv_used_ratio(self) -> float | None:
        """Of their pools; None before they told."""
        pools = [
            (handle.kv_used, handle.info.kv_blocks)
            for handle in self.handles.values()
            if handle.admits and handle.info is not None
        ]
        total = sum(total for _, total in pools)
        return sum(used or 0 for used, _ in pools) / total if total else None

    def admissible_blocks(self, tier: Tier) -> int:
        """Blocks up to which requests of ``tier`` are admitted, of all replicas that take any."""
        marks = [
            min(handle.limits.get(mark, 0) for mark in MARKS[tier])
            for handle in self.handles.values()
            if handle.admits
        ]
        return sum(marks)
