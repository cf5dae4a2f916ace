"""The scheduler's live settings: validated as a whole, replaced as a whole between two steps."""

from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack, cast

from infer_engine.protocol import Tier


class LimitsError(ValueError):
    """Limits were refused and nothing changed. ``problems`` has a line for each: which, what was given, what
    is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class LimitChanges(TypedDict, total=False):
    """Some of the limits; None leaves one as it is."""

    admit_limit: int | None
    batch_limit: int | None
    max_running: int | None
    token_budget: int | None
    max_waiting: int | None
    max_waiting_tokens: int | None
    max_passes: int | None
    age_steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``admit_limit`` and ``batch_limit`` are blocks in use up to which the tiers are admitted."""

    admit_limit: int
    batch_limit: int
    #: Most sequences in the batch.
    max_running: int = 32
    #: Most tokens computed per step.
    token_budget: int = 256
    #: Most requests in the queue before new ones are refused; 0 refuses all. The preempted always find room.
    max_waiting: int = 1024
    #: Most tokens (prompts, and what was generated of the preempted) in the queue, in the same way.
    max_waiting_tokens: int = 10_000_000
    #: How often smaller requests may pass a blocked head of the queue.
    max_passes: int = 8
    #: Steps after which a waiting batch request stands before all interactive ones.
    age_steps: int = 2000

    @classmethod
    def from_ratios(
        cls,
        total_blocks: int,
        *,
        admit_ratio: float,
        batch_ratio: float,
        max_running: int,
        token_budget: int,
        max_waiting: int,
        max_passes: int,
    ) -> "Limits":
        """Marks given as shares of a pool of ``total_blocks``, rounded down."""
        return cls(
            admit_limit=int(total_blocks * admit_ratio + 1e-9),
            batch_limit=int(total_blocks * batch_ratio + 1e-9),
            max_running=max_running,
            token_budget=token_budget,
            max_waiting=max_waiting,
            max_passes=max_passes,
        )

    def mark(self, tier: Tier) -> int:
        """Blocks in use up to which ``tier`` is admitted. Batch never reaches further than interactive."""
        return self.admit_limit if tier == "interactive" else min(self.batch_limit, self.admit_limit)

    def checked(self, total_blocks: int, running: int = 0) -> "Limits":
        """These limits if a pool of ``total_blocks`` with ``running`` sequences can live by them; raises
        LimitsError."""
        problems: list[str] = []

        def require(name: str, low: int, high: int | None, why: str = "") -> None:
            value: int = getattr(self, name)
            if value < low or (high is not None and value > high):
                allowed = f"at least {low}" if high is None else f"{low} to {high}"
                problems.append(f"{name}: {value} given, {allowed} allowed{why}")

        require("admit_limit", 0, total_blocks, " (blocks of the pool)")
        require("batch_limit", 0, total_blocks, " (blocks of the pool)")
        require("max_running", 1, None)
        # Every decoding sequence gets its token in every step, so the budget must cover the whole batch.
        least_budget = max(1, self.max_running, running)
        require(
            "token_budget", least_budget, None, f" (max_running {self.max_running}, {running} running now)"
        )
        require("max_waiting", 0, None)
        require("max_waiting_tokens", 0, None)
        require("max_passes", 0, None)
        require("age_steps", 1, None)
        if problems:
            raise LimitsError(problems)
        return self

    def changed(self, **changes: Unpack[LimitChanges]) -> "Limits":
        """A copy with the given values, not yet checked."""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **cast("dict[str, Any]", given))
