"""What changed in the fleet whoever changed it: limits and marks of replicas, shedding, how many there are.

Operations say who did what; not everything that changes is one: a server takes up other settings, replicas
come and go by themselves, a change of before goes back.
"""

from collections.abc import Iterator
from typing import NamedTuple

from infer_engine.protocol import (
    Envelope,
    FleetDelta,
    ReplicaFrame,
    ReplicaGone,
    SnapshotBegin,
    SnapshotEnd,
)

#: Limits that are marks of the pool, which the headroom moves.
_MARKS = {"admit_limit": "admission mark", "batch_limit": "batch mark"}


class Change(NamedTuple):
    #: The letter of the operation that does the like.
    sign: str
    #: None where it is the fleet's.
    replica: str | None
    #: ``token_budget 512 → 256``.
    what: str


class Changes:
    """Compares messages in their order with those before."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, epoch: str | None) -> None:
        self._epoch = epoch
        self._limits: dict[str, dict[str, int]] = {}
        self._wanted: int | None = None
        self._shed: bool | None = None
        #: All that there are, and those of a snapshot that is arriving.
        self._replicas: set[str] | None = None
        self._arriving: set[str] | None = None

    def of(self, envelope: Envelope) -> Iterator[Change]:
        if envelope.epoch != self._epoch:  # another server: what it has is not a change
            self._begin(envelope.epoch)
        match envelope.delta:
            case ReplicaFrame(replica=replica, status=status):
                if self._arriving is not None:
                    self._arriving.add(replica)
                elif self._replicas is not None and replica not in self._replicas:
                    self._replicas.add(replica)
                    yield Change("S", replica, "came")
                if status is not None and status.limits:
                    yield from self._of_limits(replica, status.limits)
            case ReplicaGone(replica=replica):
                yield from self._gone(replica)
            case FleetDelta(fleet=fleet) if fleet.spec is not None:
                yield from self._of_fleet(fleet.spec.replicas, fleet.spec.shed)
            case SnapshotBegin():
                self._arriving = set()
            case SnapshotEnd() if self._arriving is not None:
                arrived, self._arriving = self._arriving, None
                before = self._replicas
                self._replicas = set(arrived)
                if before is not None:
                    yield from (Change("S", each, "came") for each in sorted(arrived - before))
                    yield from (Change("S", each, "went") for each in sorted(before - arrived))
                for gone in self._limits.keys() - arrived:
                    del self._limits[gone]
            case _:
                pass

    def _gone(self, replica: str) -> Iterator[Change]:
        self._limits.pop(replica, None)
        if self._replicas is not None and replica in self._replicas:
            self._replicas.discard(replica)
            yield Change("S", replica, "went")

    def _of_limits(self, replica: str, limits: dict[str, int]) -> Iterator[Change]:
        before = self._limits.get(replica)
        if before == limits:
            return
        self._limits[replica] = limits
        for name, value in limits.items():
            old = (before or {}).get(name)
            if old is not None and old != value:
                sign = "H" if name in _MARKS else "L"
                yield Change(sign, replica, f"{_MARKS.get(name, name)} {old} → {value}")

    def _of_fleet(self, wanted: int, shed: bool) -> Iterator[Change]:
        if self._wanted not in (None, wanted):
            yield Change("S", None, f"replicas wanted {self._wanted} → {wanted}")
        if self._shed not in (None, shed):
            yield Change("B", None, "batch is shed" if shed else "batch goes on")
        self._wanted, self._shed = wanted, shed
