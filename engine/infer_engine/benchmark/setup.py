"""How to measure: what every part is told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from infer_engine.benchmark.machine import cores
from infer_engine.settings import DEFAULT_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """``shrink`` above 1 is for tests of function: lengths divided, few repeats, figures without meaning."""

    repeats: int = 3
    model: str = DEFAULT_MODEL
    threads: int = field(default_factory=cores)
    shrink: int = 1
    #: Ids are folded into a vocabulary of this size: for a tiny model.
    vocabulary: int | None = None
    #: Replica settings beside model and threads.
    replica: dict[str, Any] = field(default_factory=dict[str, Any])
    say: Callable[[str], None] = print

    def short(self, tokens: int) -> int:
        return max(2, tokens // self.shrink)
