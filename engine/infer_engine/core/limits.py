"""The scheduler's live settings: validated as a whole, replaced as a whole between two steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict, Unpack, cast

from infer_engine.protocol import TenantLimits, Tier

#: Most tenants that have limits of their own.
MOST_TENANTS = 256
#: No limit is larger: a number in a message has 64 bits at most, and this is as good as none.
MOST = 10**15


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
    long_prefill_tokens: int | None
    max_long_prefills: int | None
    tenant_default: TenantLimits | None
    #: Those that are named change; a tenant of None goes by the default again.
    tenants: Mapping[str, TenantLimits | None] | None


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
    #: A prompt of which more tokens than these must be computed is long.
    long_prefill_tokens: int = 1024
    #: Most long prompts that prefill at once.
    max_long_prefills: int = 1
    #: Of all tenants that ``tenants`` does not name.
    tenant_default: TenantLimits = field(default_factory=TenantLimits)
    tenants: Mapping[str, TenantLimits] = field(default_factory=dict[str, TenantLimits])

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
            if value < low or value > (MOST if high is None else high):
                allowed = (
                    f"at least {low}"
                    if high is None and value < low
                    else f"{low} to {MOST if high is None else high}"
                )
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
        require("long_prefill_tokens", 1, None)
        require("max_long_prefills", 1, None)
        problems += self._tenant_problems()
        if problems:
            raise LimitsError(problems)
        return self

    def _tenant_problems(self) -> list[str]:
        problems: list[str] = []
        if len(self.tenants) > MOST_TENANTS:
            problems.append(f"tenants: {len(self.tenants)} named, at most {MOST_TENANTS} allowed")
        for name, limits in {"tenant_default": self.tenant_default, **self.tenants}.items():
            for part in ("requests_per_minute", "prompt_tokens", "long_prefills"):
                value: int | None = getattr(limits, part)
                if value is not None and value < 1:
                    problems.append(f"{name}: {part}: {value} given, at least 1 allowed")
            if limits.kv_share is not None and not 0 < limits.kv_share <= 1:
                problems.append(f"{name}: kv_share: {limits.kv_share} given, above 0 and up to 1 allowed")
        return problems

    def changed(self, **changes: Unpack[LimitChanges]) -> "Limits":
        """A copy with the given values, not yet checked."""
        given = {name: value for name, value in changes.items() if value is not None}
        tenants = changes.get("tenants")
        if tenants is not None:
            merged = {**self.tenants, **tenants}
            given["tenants"] = {name: limits for name, limits in merged.items() if limits is not None}
        return replace(self, **cast("dict[str, Any]", given))

    def of_tenant(self, tenant: str) -> TenantLimits:
        return self.tenants.get(tenant, self.tenant_default)

    def by_name(self) -> dict[str, int]:
        """Those that are numbers."""
        return {name: getattr(self, name) for name in LIMIT_NAMES}


#: The limits that are numbers.
LIMIT_NAMES = tuple(each.name for each in fields(Limits) if each.type is int)
