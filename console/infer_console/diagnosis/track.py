"""What the last two minutes of a replica, or of the fleet, looked like: a number a second, in bounded
memory."""

import math
from array import array
from collections.abc import Mapping, Sequence

#: Looks that are kept, one a second.
LOOKS = 120

_NAN = math.nan


class Track:
    """The newest looks under each of ``keys``; a key that a look lacks is unknown, not zero. Times are those
    of the pictures. 8 bytes a number."""

    __slots__ = ("_at", "_count", "_numbers")

    def __init__(self, keys: Sequence[str]) -> None:
        self._at = array("d", [_NAN]) * LOOKS
        self._numbers = {key: array("d", [_NAN]) * LOOKS for key in keys}
        self._count = 0

    def __deepcopy__(self, _memo: object) -> "Track":
        """Of a thousand replicas there are as many: arrays are copied as they are."""
        copied = Track.__new__(Track)
        copied._at = self._at[:]
        copied._numbers = {key: kept[:] for key, kept in self._numbers.items()}
        copied._count = self._count
        return copied

    def add(self, at: float, numbers: Mapping[str, float | None]) -> None:
        place = self._count % LOOKS
        self._at[place] = at
        for key, kept in self._numbers.items():
            value = numbers.get(key)
            kept[place] = _NAN if value is None else value
        self._count += 1

    def points(self, key: str, seconds: float, until_s: float = 0.0) -> list[tuple[float, float]]:
        """Moments and values of the last ``seconds``, without the last ``until_s`` of them; oldest first,
        known ones only."""
        if not self._count:
            return []
        newest = self._at[(self._count - 1) % LOOKS]
        numbers = self._numbers[key]
        found: list[tuple[float, float]] = []
        for index in range(self._count - 1, max(-1, self._count - 1 - LOOKS), -1):
            place = index % LOOKS
            age_s = newest - self._at[place]
            if age_s > seconds:
                break
            if age_s >= until_s and not math.isnan(numbers[place]):
                found.append((self._at[place], numbers[place]))
        found.reverse()
        return found

    def values(self, key: str, seconds: float, until_s: float = 0.0) -> list[float]:
        return [value for _, value in self.points(key, seconds, until_s)]

    def last(self, key: str) -> float | None:
        """At the newest look; None where it was unknown then."""
        if not self._count:
            return None
        value = self._numbers[key][(self._count - 1) % LOOKS]
        return None if math.isnan(value) else value

    def change(self, key: str, seconds: float, until_s: float = 0.0) -> float | None:
        """By how much a number (a counter, say) rose within that time; None where fewer than two are
        known."""
        points = self.values(key, seconds, until_s)
        return points[-1] - points[0] if len(points) > 1 else None

    def back(self, key: str, looks: int) -> float | None:
        """So many looks before the newest; None where that is unknown or too long ago."""
        if looks >= min(self._count, LOOKS):
            return None
        value = self._numbers[key][(self._count - 1 - looks) % LOOKS]
        return None if math.isnan(value) else value

    def holds(self, key: str, least: float, seconds: float) -> bool:
        """Whether it was ``least`` or more for so long up to now without a break."""
        if not self._count:
            return False
        newest = self._at[(self._count - 1) % LOOKS]
        numbers = self._numbers[key]
        for index in range(self._count - 1, max(-1, self._count - 1 - LOOKS), -1):
            place = index % LOOKS
            if not numbers[place] >= least:  # also where it is NaN
                return False
            if newest - self._at[place] >= seconds:
                return True
        return False

    def held_s(self, key: str, least: float) -> float:
        """For how long up to now it was ``least`` or more without a break; an unknown number is a break."""
        if not self._count:
            return 0.0
        newest = self._at[(self._count - 1) % LOOKS]
        since = newest
        numbers = self._numbers[key]
        for index in range(self._count - 1, max(-1, self._count - 1 - LOOKS), -1):
            place = index % LOOKS
            if not numbers[place] >= least:  # also where it is NaN
                return newest - since
            since = self._at[place]
        return newest - since

    def slope_per_s(self, key: str, seconds: float) -> tuple[float, float] | None:
        """Of the straight line that fits best, and how well it does (0 to 1); None where there are too few
        points to tell."""
        points = self.points(key, seconds)
        if len(points) < 5:
            return None
        mean_at = sum(at for at, _ in points) / len(points)
        mean = sum(value for _, value in points) / len(points)
        spread = sum((at - mean_at) ** 2 for at, _ in points)
        total = sum((value - mean) ** 2 for _, value in points)
        if not spread or not total:
            return 0.0, 1.0
        slope = sum((at - mean_at) * (value - mean) for at, value in points) / spread
        return slope, slope * slope * spread / total


def median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
