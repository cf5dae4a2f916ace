"""Prompts stopped to begin with what the cache has: every one is computed whole again."""

import math
from collections.abc import Iterator

from infer_console.diagnosis.case import Case
from infer_console.diagnosis.track import Track
from infer_console.state.finding import Finding
from infer_console.view.format import count, percent

#: The shortest of these spans in which enough requests came is now; the time before it is before.
SPANS_S = (10.0, 20.0, 30.0)
REQUESTS = 16
#: The time before is looked at in two parts: what was so in both was usual.
PARTS_S = 20.0
#: Hits before that are worth missing, what is left of them, and by how many standard deviations of so few
#: requests they fell. Prompts differ in length, so that they count as half as many.
BEFORE, LEFT, DEVIATIONS, WEIGHT = 0.2, 0.35, 4.0, 0.5
#: Requests before, at least.
REQUESTS_BEFORE = 20


def now_span_s(track: Track) -> tuple[float, float] | None:
    """The span that is now, and how many requests came in it; None where there are too few."""
    for span_s in SPANS_S:
        requests = track.change("taken", span_s)
        if requests is not None and requests >= REQUESTS:
            return span_s, requests
    return None


def prefix_collapse(case: Case) -> Iterator[Finding]:
    track = case.fleet
    now = now_span_s(track)
    if now is None:
        return
    span_s, requests = now
    ratio, tokens = _ratio(track, span_s, 0.0)
    before = min((part for part, _ in _before(track, span_s) if part is not None), default=None)
    if ratio is None or before is None or (track.change("taken", 120.0, span_s) or 0) < REQUESTS_BEFORE:
        return
    if before < BEFORE or ratio > LEFT * before:
        return
    counted = WEIGHT * requests
    deviation = max(math.sqrt(before * (1 - before) / counted), 1 / counted)
    fell = (before - ratio) / deviation
    if fell < DEVIATIONS:
        return
    again = round((before - ratio) * tokens / span_s)
    yield Finding(
        rule="prefix_collapse",
        evidence={
            "hit_ratio": ratio,
            "hit_ratio_before": before,
            "requests": requests,
            "within_s": span_s,
            "deviations": fell,
            "tokens_per_s_computed_again": again,
        },
        confidence=min(1.0, fell / 10),
        words=f"prefix hits fell from {percent(before)}% to {percent(ratio)}%: {count(again)} prompt tokens a"
        " second are computed that were cached; look for a client that changed the beginning of its prompts",
    )


def _before(track: Track, span_s: float) -> list[tuple[float | None, float]]:
    return [_ratio(track, span_s + PARTS_S, span_s), _ratio(track, 120.0, span_s + PARTS_S)]


def _ratio(track: Track, seconds: float, until_s: float) -> tuple[float | None, float]:
    queries = track.change("queries", seconds, until_s)
    hits = track.change("hits", seconds, until_s)
    if queries is None or hits is None or queries <= 0 or hits < 0:
        return None, 0.0
    return hits / queries, queries
