"""Whether TTFT or ITL is so far from its usual level that somebody should be told, and which of the two
moved first, as the Fleet screen says it too."""

from dataclasses import dataclass
from statistics import median

from infer_console.diagnosis.onset import First, moved_first
from infer_console.state.picture import Picture, Series

#: The usual level is the median of this time, the last minute left out; of so many known samples at least.
BASELINE_S, LATELY_S, LEAST_SAMPLES = 900.0, 60.0, 15
#: It has moved when it is so many times its level, and at least so high in seconds.
RATIO = 2.5
TTFT_FLOOR_S, ITL_FLOOR_S = 2.0, 0.1


@dataclass(frozen=True, slots=True)
class Moved:
    """One of the two, since when, from which level to which; seconds."""

    at: float
    before_s: float
    now_s: float


@dataclass(frozen=True, slots=True)
class FirstMoved:
    first: First
    ttft: Moved | None
    itl: Moved | None

    @property
    def at(self) -> float:
        """When the first of them was as far as that."""
        return min(moved.at for moved in (self.ttft, self.itl) if moved is not None)


def first_moved(picture: Picture) -> FirstMoved | None:
    """From the fleet's p99 histories; None where both are at their levels, or these are not known."""
    ttft = _moved(picture.history.get("ttft_p99"), picture.at, TTFT_FLOOR_S)
    itl = _moved(picture.history.get("itl_p99"), picture.at, ITL_FLOOR_S)
    if ttft is None and itl is None:
        return None
    onset = moved_first(picture.history, picture.at)
    if onset is not None:
        return FirstMoved(onset.first, ttft, itl)
    ttft_first = itl is None or (ttft is not None and ttft.at <= itl.at)
    return FirstMoved("TTFT" if ttft_first else "ITL", ttft, itl)


def _moved(series: Series | None, now: float, floor_s: float) -> Moved | None:
    if series is None or not series.values or series.values[-1] is None:
        return None
    lately, long = round(LATELY_S / series.interval_s), round(BASELINE_S / series.interval_s)
    before = [value for value in series.values[-long:-lately] if value is not None]
    if len(before) < LEAST_SAMPLES:
        return None
    level_s = median(before)
    least_s = max(floor_s, RATIO * level_s)
    moved = 0
    for value in reversed(series.values):
        if value is None or value < least_s:
            break
        moved += 1
    if not moved:
        return None
    return Moved(now - (moved - 1) * series.interval_s, level_s, series.values[-1])
