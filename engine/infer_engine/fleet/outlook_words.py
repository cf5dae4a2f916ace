"""A forecast in words and numbers."""

from infer_engine.fleet.outlook import Job
from infer_engine.fleet.outlook_desk import Minute
from infer_engine.fleet.seconds_words import seconds_words
from infer_engine.protocol import Effect, Tier

Numbers = dict[str, float | None]


def of_tenant(minute: Minute | None, kv_now: float) -> tuple[list[str], Numbers]:
    """What a tenant's limits do to it and to others in the next minute; ``kv_now`` are its blocks."""
    if minute is None:
        return ["what the next minute brings is not known before requests were answered"], {}
    its = minute.its()
    kv_blocks = minute.kv_blocks(its)
    refused = minute.refused_rate + minute.refused_prompt
    waiting = minute.still_waiting(its)
    others, numbers = _waits(minute, [job for job in minute.jobs if job.tenant != minute.tenant], "others")
    return [
        f"next minute, if it asks as in the last: {refused} of {refused + minute.taken} of its requests are "
        f"refused ({minute.refused_rate} with 429, {minute.refused_prompt} with 400)",
        f"at its end {waiting:.0f} of it wait; it holds {kv_blocks:,.0f} KV blocks on the mean, "
        f"{kv_now:,.0f} now",
        others,
    ], {
        "refused_next_minute": float(refused),
        "refused_rate_next_minute": float(minute.refused_rate),
        "refused_prompt_next_minute": float(minute.refused_prompt),
        "taken_next_minute": float(minute.taken),
        "waiting_in_a_minute": waiting,
        "kv_blocks_next_minute": kv_blocks,
        "kv_blocks_freed": kv_now - kv_blocks,
    } | numbers


def of_tier(minute: Minute | None, tier: Tier) -> tuple[list[str], Numbers]:
    """What comes to requests of ``tier`` in the next minute."""
    if minute is None:
        return [], {}
    line, numbers = _waits(minute, [job for job in minute.jobs if job.tier == tier], tier)
    return [line], numbers


def extended(effect: Effect, lines: list[str], numbers: Numbers) -> Effect:
    return Effect(
        summary=[*effect.summary, *lines], numbers={**effect.numbers, **numbers}, warnings=effect.warnings
    )


def _waits(minute: Minute, jobs: list[Job], who: str) -> tuple[str, Numbers]:
    p50_s, p95_s = minute.wait_s(jobs, 0.5), minute.wait_s(jobs, 0.95)
    words = "none comes"
    if p50_s is not None and p95_s is not None:
        words = f"p50 {seconds_words(p50_s)}, p95 up to about {seconds_words(max(p50_s, p95_s))}"
    return (
        f"queue wait of {who} in that minute: {words}",
        {f"{who}_queue_wait_p50_s": p50_s, f"{who}_queue_wait_p95_s": p95_s},
    )
