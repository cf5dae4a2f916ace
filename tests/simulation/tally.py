"""What a simulation went through, so that a test can see whether it went anywhere."""

from collections import Counter
from dataclasses import dataclass, field

from simulation.counts import Counts, counter


@dataclass
class Tally(Counts):
    seeds: int = 0
    steps: int = 0
    requests: int = 0
    tokens: int = 0
    preemptions: int = 0
    aged: int = 0
    yields: int = 0
    swaps: int = 0
    swapped_in_blocks: int = 0
    hit_tokens: int = 0
    evicted_blocks: int = 0
    copied_blocks: int = 0
    #: Forks that joined the batch at once.
    forks: int = 0
    #: Requests ended by their deadline.
    late: int = 0
    admitted_past_a_head: int = 0
    closed: int = 0
    finished: Counter[str] = field(default_factory=counter)
    refused: Counter[str] = field(default_factory=counter)
    #: Requests that were aborted, by the state in which they were.
    aborted: Counter[str] = field(default_factory=counter)
    #: Requests whose deadline passed, by the state in which they were.
    passed: Counter[str] = field(default_factory=counter)
    #: Requests that closing handed back, by the state in which they were.
    handed_back: Counter[str] = field(default_factory=counter)
    #: Preemptions by who they befell and how.
    preempted: Counter[str] = field(default_factory=counter)
    #: Changes of each limit; ``refused`` counts those that were not allowed.
    changed: Counter[str] = field(default_factory=counter)
    #: Waiting reasons, seen every sixteenth step.
    reasons: Counter[str] = field(default_factory=counter)
