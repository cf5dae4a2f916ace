"""Replicas that have stalled are ended and started again: what does not step is of no use to those it has.

A stall is seen from outside, so it must not be mistaken: it is believed at the second look in a row, and not
when the server itself was held up meanwhile. A process that computes all the same is slow rather than stuck,
and gets longer: ending it would make an overloaded machine do its work twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from infer_engine.fleet.health import has_stalled, has_work, patience_s, without_progress_s
from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.lifecycle import Lifecycle
from infer_engine.replica.handle import ReplicaHandle

#: One that uses CPU may make no progress for so many times the patience.
COMPUTING_PATIENCE = 6.0
#: Real seconds beyond its period by which a look may come late; after a later one all are looked at anew.
MOST_LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    incarnation: int
    cpu_s: float | None


@dataclass(slots=True)
class Stalls:
    handles: Mapping[str, ReplicaHandle]
    lifecycles: Mapping[str, Lifecycle]
    ledger: Ledger
    #: Real seconds between two looks, and a clock of such seconds.
    period_s: float
    real_clock: Callable[[], float]
    on_replaced: Callable[[str], None] = lambda _: None
    _seen: dict[str, _Seen] = field(default_factory=dict[str, _Seen])
    _looked_s: float | None = None

    def look(self) -> None:
        """To be called every ``period_s``."""
        now_s = self.real_clock()
        late = self._looked_s is not None and now_s - self._looked_s > self.period_s + MOST_LATE_S
        self._looked_s = now_s
        if late:
            self._seen.clear()
            return
        stalled = {handle.id: handle for handle in list(self.handles.values()) if self._is_stalled(handle)}
        for gone in self._seen.keys() - stalled.keys():
            del self._seen[gone]
        for handle in stalled.values():
            self._judge(handle)

    def _is_stalled(self, handle: ReplicaHandle) -> bool:
        work = has_work(handle, self.ledger.on(handle.id))
        return has_stalled(handle, self.ledger.clock(), has_work=work)

    def _for_s(self, handle: ReplicaHandle) -> float:
        work = has_work(handle, self.ledger.on(handle.id))
        return without_progress_s(handle, self.ledger.clock(), has_work=work)

    def _judge(self, handle: ReplicaHandle) -> None:
        lifecycle = self.lifecycles[handle.id]
        before, cpu_s = self._seen.get(handle.id), lifecycle.cpu_s()
        self._seen[handle.id] = _Seen(handle.incarnation, cpu_s)
        if before is None or before.incarnation != handle.incarnation:
            return
        for_s = self._for_s(handle)
        computes = cpu_s is not None and before.cpu_s is not None and cpu_s > before.cpu_s
        if computes and for_s < COMPUTING_PATIENCE * patience_s(handle):
            return
        del self._seen[handle.id]
        self.on_replaced(handle.id)
        work = has_work(handle, self.ledger.on(handle.id))
        what = "made no step though it had work" if work else "said nothing"
        lifecycle.declare_dead(f"it stalled: it {what} for {for_s / handle.pace:.1f} s")
