"""The limits that a replica begins with."""

from infer_engine.core.limits import Limits
from infer_engine.runner.runner import RunnerInfo
from infer_engine.settings import ReplicaSettings

#: A prompt that takes more whole steps than these is long where nobody said what is.
LONG_IN_STEPS = 4


def starting_limits(settings: ReplicaSettings, info: RunnerInfo) -> Limits:
    """The limits that the settings ask for, in blocks of the pool there is. LimitsError when they do not go
    together."""
    budget = settings.starting_token_budget(info.device)
    return Limits.from_ratios(
        info.kv_blocks,
        admit_ratio=settings.admit_limit_ratio,
        batch_ratio=settings.batch_limit_ratio,
        max_running=settings.max_running,
        token_budget=budget,
        max_waiting=settings.max_waiting,
        max_passes=settings.max_passes,
    ).changed(
        max_waiting_tokens=settings.max_waiting_tokens,
        age_steps=settings.age_steps,
        long_prefill_tokens=settings.long_prefill_tokens or LONG_IN_STEPS * budget,
        max_long_prefills=settings.max_long_prefills,
    )
