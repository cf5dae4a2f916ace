"""When a latency left its usual level, and which of TTFT and ITL did so first.

The first to move says where to look: TTFT first is waiting or prefill, ITL first is the step itself.
"""

from collections.abc import Mapping
from statistics import quantiles
from typing import Literal, NamedTuple

from infer_console.state.picture import Series

#: So many samples must be known, and a rise is one to this multiple of the usual level and by at least this
#: much.
LEAST_SAMPLES = 30
RISE = 2.0
LEAST_RISE_S = {"ttft_p99": 0.2, "itl_p99": 0.02}
#: Samples that may be unknown within a rise, and by how many two rises may differ and count as one.
MOST_GAP = 5
TOGETHER_SAMPLES = 2

First = Literal["TTFT", "ITL", "TTFT and ITL"]


class Moved(NamedTuple):
    first: First
    #: Unix seconds.
    at: float


def onset(series: Series, least_rise_s: float) -> int | None:
    """How many samples ago the rise that still lasts began; None where there is none, or it began before the
    series did. The usual level is the lower quartile."""
    known = [value for value in series.values if value is not None]
    if len(known) < LEAST_SAMPLES:
        return None
    usual = quantiles(known, n=4)[0]
    bound = max(usual * RISE, usual + least_rise_s)
    began: int | None = None
    gap = 0
    for ago, value in enumerate(reversed(series.values)):
        if value is None:
            gap += 1
            if gap > MOST_GAP:
                return began
        elif value > bound:
            began, gap = ago, 0
        else:
            return began
    return None


def moved_first(history: Mapping[str, Series], now_at: float) -> Moved | None:
    """Which of the two rises that last now began first, and when; None where neither is up."""
    began: dict[str, int] = {}
    interval_s = 0.0
    for key, least in LEAST_RISE_S.items():
        series = history.get(key)
        ago = onset(series, least) if series is not None else None
        if series is not None and ago is not None:
            began[key], interval_s = ago, series.interval_s
    if not began:
        return None
    ttft, itl = began.get("ttft_p99"), began.get("itl_p99")
    first: First
    if ttft is not None and itl is not None and abs(ttft - itl) <= TOGETHER_SAMPLES:
        first = "TTFT and ITL"
    else:
        first = "TTFT" if (ttft or 0) > (itl or 0) or itl is None else "ITL"
    return Moved(first, now_at - max(began.values()) * interval_s)
