"""Who looks at which replica how closely. A replica is asked for the most that any open observer wants."""

from collections.abc import Mapping

from infer_engine.replica.handle import ReplicaHandle
from infer_engine.replica.messages import Observe

#: No replica is asked for more, whatever an observer wants.
MOST_HZ = 20.0


class Observer:
    """Open until ``close``, which may be called twice."""

    def __init__(self, observers: "Observers", replica: str | None, hz: float, blocks: bool) -> None:
        self.replica = replica
        self.hz = min(max(0.0, hz), MOST_HZ)
        self.blocks = blocks
        self._observers = observers

    def close(self) -> None:
        self._observers.remove(self)


class Observers:
    def __init__(self, handles: Mapping[str, ReplicaHandle]) -> None:
        self._handles = handles
        self._open: list[Observer] = []

    def add(self, replica: str | None, hz: float, blocks: bool) -> Observer:
        """Look at one replica, or at all of them. KeyError when there is none of that id."""
        if replica is not None and replica not in self._handles:
            raise KeyError(replica)
        observer = Observer(self, replica, hz, blocks)
        self._open.append(observer)
        self._ask()
        return observer

    def remove(self, observer: Observer) -> None:
        if observer in self._open:
            self._open.remove(observer)
            self._ask()

    def joined(self) -> None:
        """There is a replica more."""
        self._ask()

    def _ask(self) -> None:
        for handle in self._handles.values():
            looking = [each for each in self._open if each.replica in (None, handle.id)]
            handle.watch(
                Observe(
                    hz=max((each.hz for each in looking), default=0.0),
                    blocks=any(each.blocks for each in looking),
                )
            )
