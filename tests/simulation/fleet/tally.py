"""What scenarios went through, so that a test can see whether they went anywhere."""

from collections import Counter
from dataclasses import dataclass, field

from simulation.counts import Counts, counter


@dataclass
class FleetTally(Counts):
    scenarios: int = 0
    requests: int = 0
    moves: int = 0
    steps: int = 0
    #: Clients that closed their connection while their request was live.
    left: int = 0
    #: Messages of lives that were over, said all the same.
    late_messages: int = 0
    #: Servers that were stopped, or killed, and started again.
    restarts: int = 0
    writes: int = 0
    finished: Counter[str] = field(default_factory=counter)
    refused: Counter[str] = field(default_factory=counter)
    #: Commands by verb that were accepted, and codes of those that were not.
    accepted: Counter[str] = field(default_factory=counter)
    denied: Counter[str] = field(default_factory=counter)
    faults: Counter[str] = field(default_factory=counter)
    #: Replicas by the state that they came to.
    states: Counter[str] = field(default_factory=counter)
    #: Moves by why.
    moved: Counter[str] = field(default_factory=counter)
    #: How operations ended.
    operations: Counter[str] = field(default_factory=counter)
