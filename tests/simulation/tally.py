"""What a simulation went through, so that a test can see whether it went anywhere."""

from collections import Counter
from dataclasses import dataclass, field, fields


def _counter() -> Counter[str]:
    return Counter()


@dataclass
class Tally:
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
    handed_back_with_tokens: int = 0
    finished: Counter[str] = field(default_factory=_counter)
    refused: Counter[str] = field(default_factory=_counter)
    #: Waiting reasons, seen every sixteenth step.
    reasons: Counter[str] = field(default_factory=_counter)

    def add(self, other: "Tally") -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def __str__(self) -> str:
        ended = ", ".join(f"{count} {reason}" for reason, count in sorted(self.finished.items()))
        return (
            f"{self.steps} steps, {self.requests} requests, {self.tokens} tokens, "
            f"{self.preemptions} preemptions, {self.hit_tokens} tokens found in the cache, "
            f"{self.evicted_blocks} cached blocks evicted, ended: {ended}"
        )
