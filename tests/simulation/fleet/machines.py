"""Replicas that fail in every way: they crash, are killed, hang, do not load, do not die of being killed."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from infer_engine.core.scheduler import Scheduler
from infer_engine.replica.launch_inproc import InprocReplica, InprocReplicas, MakeRunner
from infer_engine.replica.messages import FromReplica, ReplicaConfig
from infer_engine.replica.virtual_clock import Clock

#: Messages of the dead that are kept, to be said again.
MOST_KEPT = 64


class Machine(InprocReplica):
    """One life. ``undead_s`` is how long it goes on after it was killed."""

    undead_s = 0.0
    #: What it was about to do when it hung.
    _due: Callable[[], None] | None = None

    def _at(self, due_s: float, callback: Callable[[], None]) -> None:
        self._due = callback
        super()._at(due_s, callback)

    def kill(self) -> None:
        if self.undead_s:
            wait_s, self.undead_s = self.undead_s, 0.0
            self._clock.call_at(self._clock.now() + wait_s, self.kill)
        else:
            super().kill()

    def thaw(self) -> None:
        """It goes on where it hung, and knows nothing of the time between."""
        if self._frozen and not self._ended.done():
            self._frozen = False
            self._at(self._clock.now(), self._due or self._turn)

    @property
    def scheduler(self) -> Scheduler | None:
        """None while it loads."""
        return self._loop.scheduler if self._loop is not None else None


class Machines(InprocReplicas):
    """``load_s`` and whether loading fails are drawn for each life."""

    def __init__(
        self, clock: Clock, make_runner: MakeRunner, random: Random, *, fails_to_load: float
    ) -> None:
        super().__init__(clock, make_runner)
        self._random = random
        self._fails_to_load = fails_to_load
        self._kept: list[tuple[bytes, FromReplica]] = []
        self.quiet = False

    async def launch(self, config: ReplicaConfig, _log_path: Path, _threads: int) -> Machine:
        machine = Machine(self, config)
        self.by_identity[machine.identity] = machine
        draw = self._random
        load_s = draw.choice([0.0, 0.3, 1.0, 2.5])
        machine.start(self._make_runner, load_s)
        if not self.quiet and draw.random() < self._fails_to_load:
            self.clock.call_at(self.clock.now() + load_s / 2, lambda: machine.crash("it does not load"))
        return machine

    def living(self, replica: str) -> Machine | None:
        """The newest life of it."""
        lives = [each for each in self.by_identity.values() if each.config.replica == replica]
        newest = max(lives, key=lambda each: each.config.incarnation, default=None)
        return newest if isinstance(newest, Machine) else None

    def all_living(self) -> list[Machine]:
        return [each for each in self.by_identity.values() if isinstance(each, Machine)]

    def deliver(self, replica: InprocReplica, message: FromReplica) -> None:
        self._kept.append((replica.identity, message))
        del self._kept[:-MOST_KEPT]
        super().deliver(replica, message)

    def repeat_of_the_dead(self) -> int:
        """Say again what lives said that are over; how many messages that were."""
        dead = [each for each in self._kept if each[0] not in self.by_identity]
        if self._on_message is not None:
            for identity, message in dead:
                self._on_message(identity, message)
        return len(dead)
