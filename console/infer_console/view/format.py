"""Numbers as an operator reads them: short, in the field's units, and ``–`` where nothing is known."""

import math
import time

from infer_console.terminal.safe_text import SafeText, safe

UNKNOWN = safe("–")

MINUTE, HOUR, DAY = 60, 3600, 86400


def count(value: float | None) -> SafeText:
    """A whole number with thousands separators: ``1,303``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return safe(f"{round(value):,}")


def short_count(value: float | None) -> SafeText:
    """A number in at most five characters: ``412``, ``6.2k``, ``38k``, ``1.3M``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for limit, unit in ((1e3, ""), (1e6, "k"), (1e9, "M"), (1e12, "G")):
        if abs(value) < limit:
            scaled = value / (limit / 1e3)
            return safe(f"{scaled:.1f}{unit}" if unit and abs(scaled) < 10 else f"{round(scaled)}{unit}")
    return safe(">1T")


def mean_count(value: float | None) -> SafeText:
    """The mean of a count over a while: whole, but ``.2`` and ``<.1`` under one, for 0 means never any."""
    if value is None or not math.isfinite(value) or not 0 < value < 0.95:
        return count(value)
    return safe(f"{value:.1f}".removeprefix("0")) if value >= 0.05 else safe("<.1")


def rate(value: float | None) -> SafeText:
    """Per second or per minute, one decimal below ten."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return safe(f"{value:.1f}") if 0 < value < 9.95 else count(value)


def percent(ratio: float | None) -> SafeText:
    """0..1 as a whole percentage without its sign. Never rounds a little down to 0 or nearly all up to
    100."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    value = round(ratio * 100)
    if value == 0 and ratio > 0:
        return safe("<1")
    if value == 100 and ratio < 1:
        return safe("99")
    return safe(str(value))


def seconds(value: float | None) -> SafeText:
    """A latency: ``.04``, ``.4``, ``1.2``, ``48.0``, ``312``; the unit stands in the column's head."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value <= 0:
        return safe("0")
    if value < 0.095:
        return safe(f"{value:.2f}".removeprefix("0")) if value >= 0.005 else safe("<.01")
    if value < 0.95:
        return safe(f"{value:.1f}".removeprefix("0"))
    return safe(f"{value:.1f}" if value < 99.95 else f"{value:.0f}")


def milliseconds(value_s: float | None) -> SafeText:
    """A duration given in seconds as whole milliseconds, without the unit."""
    if value_s is None or not math.isfinite(value_s):
        return UNKNOWN
    ms = value_s * 1000
    return safe("<1") if 0 < ms < 1 else safe(f"{ms:,.0f}")


def age(value_s: float | None) -> SafeText:
    """How long ago or how long still: ``.4s``, ``47s``, ``1m58s``, ``2h05m``, ``6d``."""
    if value_s is None or not math.isfinite(value_s):
        return UNKNOWN
    value_s = max(0.0, value_s)
    if value_s < 0.95:
        return safe(f"{value_s:.1f}s".removeprefix("0")) if value_s >= 0.05 else safe("0s")
    if value_s < 9.95:
        return safe(f"{value_s:.1f}s")
    whole = round(value_s)
    if whole < 100:
        return safe(f"{whole}s")
    if whole < HOUR:
        return safe(f"{whole // MINUTE}m{whole % MINUTE:02d}s")
    if whole < DAY:
        return safe(f"{whole // HOUR}h{whole % HOUR // MINUTE:02d}m")
    return safe(f"{whole // DAY}d")


def size(value_bytes: float | None) -> SafeText:
    """Bytes in decimal units: ``336 MB``, ``4.6 GB``."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return UNKNOWN
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value_bytes >= factor:
            scaled = value_bytes / factor
            return safe(f"{scaled:.1f} {unit}" if scaled < 9.95 else f"{scaled:,.0f} {unit}")
    return safe(f"{value_bytes:.0f} B")


def clock(at: float | None) -> SafeText:
    """A wall-clock moment in UTC: ``03:11:26Z``."""
    if at is None or not math.isfinite(at) or not 0 <= at < 1e11:
        return UNKNOWN
    return safe(time.strftime("%H:%M:%SZ", time.gmtime(at)))


def clock_in_lists(at: float | None) -> SafeText:
    """As :func:`clock`, without the zone."""
    return safe(clock(at).removesuffix("Z"))
