"""Words of the command line that stand for a time or a number within bounds: types for argparse."""

from argparse import ArgumentTypeError
from collections.abc import Callable

from infer_engine.durations import show_duration

from infer_console.actions.params import parse_duration


def duration(lowest_s: float, highest_s: float) -> Callable[[str], float]:
    """In seconds."""

    def read(given: str) -> float:
        seconds = parse_duration(given)
        if seconds is None or not lowest_s <= seconds <= highest_s:
            bounds = f"from {show_duration(lowest_s)} to {show_duration(highest_s)}"
            raise _refused(given, f"a duration like 30s or 5m, {bounds}")
        return seconds

    return read


def whole(lowest: int, highest: int) -> Callable[[str], int]:
    def read(given: str) -> int:
        digits = given.isascii() and given.isdigit() and len(given) < 10
        if not digits or not lowest <= int(given) <= highest:
            raise _refused(given, f"a whole number from {lowest} to {highest}")
        return int(given)

    return read


def _refused(given: str, allowed: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{given!r} was given, allowed is {allowed}")
