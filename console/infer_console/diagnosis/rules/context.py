"""Prompts became longer, and how long the memory lasts at the pace at which it fills."""

from collections.abc import Iterator

from infer_console.diagnosis.advice import one_more
from infer_console.diagnosis.case import Case
from infer_console.diagnosis.rules.prefix import PARTS_S, now_span_s
from infer_console.diagnosis.track import Track
from infer_console.state.finding import Finding
from infer_console.view.format import age, count, percent, short_count

#: Prompts so much longer than before, where so many came before.
RATIO, REQUESTS_BEFORE = 2.5, 20
#: The straight line that a pool is filled along: over this time, fitting so well.
SECONDS, FIT = 20.0, 0.9
#: Told when it is full so soon, from this share on.
SOON_S, FROM = 120.0, 0.5


def context_shift(case: Case) -> Iterator[Finding]:
    now = now_span_s(case.fleet)
    if now is None:
        return
    span_s, requests = now
    mean = _mean(case.fleet, span_s, 0.0)
    requests_before = case.fleet.change("taken", 120.0, span_s)
    parts = (
        _mean(case.fleet, span_s + PARTS_S, span_s),
        _mean(case.fleet, 120.0, span_s + PARTS_S),
    )
    before = max((part for part in parts if part is not None), default=None)
    if mean is None or before is None or requests_before is None or requests_before < REQUESTS_BEFORE:
        return
    if mean < RATIO * before:
        return
    left = [_exhausted_s(case, name) for name, _, _ in case.ready()]
    left_s = min((each for each in left if each is not None), default=None)
    lasts = f"; KV is exhausted in {age(left_s)} at this pace" if left_s is not None else ""
    yield Finding(
        rule="context_shift",
        evidence={
            "prompt_tokens_mean": mean,
            "prompt_tokens_mean_before": before,
            "requests": requests,
            "within_s": span_s,
            "kv_exhausted_in_s": left_s,
        },
        confidence=min(1.0, requests / (requests + 8)),
        words=f"prompts became {mean / before:.1f}× longer: {short_count(mean)} tokens on average,"
        f" {short_count(before)} before{lasts}",
        action=one_more(case, "its pool more for the longer prompts"),
    )


def kv_exhaustion(case: Case) -> Iterator[Finding]:
    for name, replica, track in case.ready():
        kv = replica.kv
        if kv.used is None or not kv.total or kv.used < FROM * kv.total or replica.waiting:
            continue
        left_s = _exhausted_s(case, name)
        if left_s is None:
            continue
        slope = track.slope_per_s("used", SECONDS)
        yield Finding(
            rule="kv_exhaustion",
            replica=name,
            evidence={
                "kv_exhausted_in_s": left_s,
                "blocks_per_s": slope[0] if slope is not None else None,
                "fit": slope[1] if slope is not None else None,
                "kv_used_blocks": kv.used,
                "admit_limit_blocks": kv.admit_limit,
            },
            confidence=slope[1] if slope is not None else 0.0,
            words=f"KV is exhausted in {age(left_s)}: {percent(kv.used / kv.total)}% is used and grows by"
            f" {count(slope[0] if slope is not None else None)} blocks/s",
            action=one_more(case, f"{count(kv.admit_limit)} blocks more"),
        )


def _mean(track: Track, seconds: float, until_s: float) -> float | None:
    requests = track.change("taken", seconds, until_s)
    tokens = track.change("taken_tokens", seconds, until_s)
    return tokens / requests if requests and tokens is not None and requests > 0 else None


def _exhausted_s(case: Case, name: str) -> float | None:
    """Seconds until the pool is used up to its mark, where it fills steadily and soon will be."""
    kv, track = case.picture.replicas[name].status.kv, case.tracks[name]
    slope = track.slope_per_s("used", SECONDS)
    if slope is None or kv.used is None or kv.admit_limit is None or slope[0] <= 0 or slope[1] < FIT:
        return None
    left_s = (kv.admit_limit - kv.used) / slope[0]
    return left_s if 0 < left_s <= SOON_S else None
