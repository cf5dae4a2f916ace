"""What a simulation went through, so that a test can see whether it went anywhere."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


def _counter() -> Counter[str]:
    return Counter()


@dataclass
class Tally:
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
    finished: Counter[str] = field(default_factory=_counter)
    refused: Counter[str] = field(default_factory=_counter)
    #: Requests that were aborted, by the state in which they were.
    aborted: Counter[str] = field(default_factory=_counter)
    #: Requests whose deadline passed, by the state in which they were.
    passed: Counter[str] = field(default_factory=_counter)
    #: Requests that closing handed back, by the state in which they were.
    handed_back: Counter[str] = field(default_factory=_counter)
    #: Preemptions by who they befell and how.
    preempted: Counter[str] = field(default_factory=_counter)
    #: Changes of each limit; ``refused`` counts those that were not allowed.
    changed: Counter[str] = field(default_factory=_counter)
    #: Waiting reasons, seen every sixteenth step.
    reasons: Counter[str] = field(default_factory=_counter)

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> "Tally":
        """From ``as_dict``, come as JSON from another process."""
        return cls(
            **{name: Counter(value) if isinstance(value, dict) else value for name, value in known.items()}
        )

    def as_dict(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def add(self, other: "Tally") -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def __str__(self) -> str:
        """One line for each thing that was counted."""
        lines: list[str] = []
        for part in fields(self):
            value, name = getattr(self, part.name), part.name.replace("_", " ")
            if isinstance(value, Counter):
                told = ", ".join(f"{count:,} {what}" for what, count in sorted(value.items()))
                lines.append(f"{name}: {told or 'none'}")
            else:
                lines.append(f"{name}: {value:,}")
        return "\n".join(lines)
