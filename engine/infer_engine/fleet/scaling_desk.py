"""What the scaling signals are worked out of: the fleet's demand as it is, and how long replicas take to
start."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from infer_engine.fleet.health import has_stalled
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.measures import Measures, itl_figures, ttft_figures, wait_p95
from infer_engine.fleet.scaling import WAIT_TARGET_S, Demand, Recommendation, Scaling
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import ScalingStatus
from infer_engine.replica.handle import ReplicaHandle

#: Starts that are remembered; the longest of them counts.
STARTS_KEPT = 8
#: How often demand is looked at, in seconds of the fleet's clock.
PERIOD_S = 2.0
#: Where none is promised, an ITL p99 above this is a stream that stands still to its reader.
ASSUMED_ITL_S = 1.0
#: Replicas in these should be ready and are not.
_UNREADY = frozenset({"starting", "restarting", "failed", "fenced"})


@dataclass(slots=True)
class ScalingDesk:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    measures: Measures
    scaling: Scaling
    #: What was promised of the 99th percentiles; None: nothing.
    slo_ttft_s: float | None = None
    slo_itl_s: float | None = None
    _starts_s: deque[float] = field(default_factory=lambda: deque[float](maxlen=STARTS_KEPT))
    #: When the present life of each replica was first seen, until it is ready; then None.
    _began_s: dict[str, tuple[int, float | None]] = field(default_factory=dict[str, tuple[int, float | None]])
    _latest: tuple[Demand, Recommendation] | None = None

    def tick(self) -> None:
        """To be called often."""
        now_s = self.ledger.clock()
        self._see_starts(now_s)
        if self._latest is None or now_s - self._latest[0].now_s >= PERIOD_S:
            demand = self._demand(now_s)
            self._latest = demand, self.scaling.recommend(demand)

    def status(self) -> ScalingStatus | None:
        """None before anything was looked at."""
        if self._latest is None:
            return None
        demand, recommendation = self._latest
        return ScalingStatus(
            recommended=recommendation.replicas,
            because=recommendation.because,
            ready=demand.ready,
            least=self.scaling.least,
            most=self.scaling.most,
            queue_wait_p95_s=demand.queue_wait_p95_s,
            queue_wait_target_s=WAIT_TARGET_S,
            kv_pressure=recommendation.kv_pressure,
            kv_slope_per_min=recommendation.kv_slope_per_min,
            boot_s=self.scaling.boot_s,
            boot_measured=bool(self._starts_s),
        )

    def _see_starts(self, now_s: float) -> None:
        for handle in self.handles.values():
            incarnation, began_s = self._began_s.get(handle.id, (0, None))
            if incarnation != handle.incarnation:
                self._began_s[handle.id] = handle.incarnation, now_s
            elif began_s is not None and handle.ready is not None:
                self._began_s[handle.id] = incarnation, None
                self._starts_s.append(now_s - began_s)
                self.scaling.boot_s = max(self._starts_s)

    def _demand(self, now_s: float) -> Demand:
        handles = list(self.handles.values())
        ready = [handle for handle in handles if handle.admits]
        requests = list(self.ledger.live.values())
        waiting = [request for request in requests if request.state == "waiting"]
        infos = [handle.info for handle in handles if handle.info is not None]
        needed = sum(handle.kv_used or 0 for handle in handles)
        if infos:
            needed += sum(request.needs_blocks(infos[0].block_size) for request in waiting)
        limits = [limit for each in ready if (limit := each.limits.get("admit_limit"))]
        slots = [most for each in ready if (most := each.slots)]
        busy = {request.generation.replica for request in requests}
        return Demand(
            now_s=now_s,
            ready=len(ready),
            coming=sum(handle.state in ("starting", "restarting") for handle in handles),
            queue_wait_p95_s=wait_p95(
                [each.queue_wait for each in self.measures.of.values()], requests, now_s
            ),
            running=len(requests) - len(waiting),
            waiting=len(waiting),
            kv_needed_blocks=needed,
            kv_per_replica_blocks=sum(limits) // len(limits) if limits else None,
            slots_per_replica=sum(slots) // len(slots) if slots else None,
            unready=sum(
                each.state in _UNREADY or has_stalled(each, now_s, has_work=each.id in busy)
                for each in handles
            ),
            late=self._late(requests, now_s),
        )

    def _late(self, requests: list[Tracked], now_s: float) -> bool:
        measures = self.measures.of.values()
        itl_s = itl_figures([each.itl for each in measures], now_s).p99
        if itl_s is not None and itl_s > (self.slo_itl_s or ASSUMED_ITL_S):
            return True
        if self.slo_ttft_s is None:
            return False
        ttft_s = ttft_figures([each.ttft for each in measures], requests, now_s).p99
        return ttft_s is not None and ttft_s > self.slo_ttft_s
