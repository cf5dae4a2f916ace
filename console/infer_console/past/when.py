"""Moments as an operator types them."""

import re
import time

DAY_S = 86_400.0
ALLOWED = "now, a time before now like -90s, -10m or now-2h, a time of day (UTC) like 03:05:10, Unix seconds"

_BEFORE = re.compile(r"(?:now)?-(\d{1,7}(?:\.\d{1,3})?)([smhd]?)", re.ASCII)
_OF_DAY = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?Z?", re.ASCII)
_UNIX = re.compile(r"\d{9,11}(?:\.\d{1,6})?", re.ASCII)
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": DAY_S}


def moment(word: str, now: float, latest: float | None = None) -> float:
    """Unix seconds. A time of day is the last one that was, seen from ``latest``, or from ``now`` where that
    is later: who looks at the past may go on from there. ValueError says what is allowed."""
    if word == "now":
        return now
    if before := _BEFORE.fullmatch(word):
        return now - float(before[1]) * _UNITS_S[before[2]]
    if _UNIX.fullmatch(word):
        return float(word)
    of_day = _OF_DAY.fullmatch(word)
    if of_day:
        hour, minute, second = int(of_day[1]), int(of_day[2]), int(of_day[3] or 0)
        if hour < 24 and minute < 60 and second < 60:
            latest = max(now, latest or now)
            today = latest - latest % DAY_S + hour * 3_600 + minute * 60 + second
            return today if today <= latest else today - DAY_S
    raise ValueError(f"{word!r} was given, allowed is {ALLOWED}")


def span(word: str, now: float, latest: float | None = None) -> tuple[float, float]:
    """``-10m..now``, each as a ``moment``."""
    first, dots, last = word.partition("..")
    if not dots:
        raise ValueError(f"{word!r} was given, allowed is a span like -10m..now")
    from_at, to_at = moment(first or "-10m", now, latest), moment(last or "now", now, latest)
    if to_at < from_at:
        raise ValueError(f"{word!r} was given, and its end is before its beginning")
    return from_at, to_at


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


def clock_of_day(at: float) -> str:
    return time.strftime("%H:%M:%SZ", time.gmtime(at))
