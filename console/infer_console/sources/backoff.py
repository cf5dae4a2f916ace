"""How long to wait before trying again."""

import random

SHORTEST_S = 0.25
LONGEST_S = 10.0


class Backoff:
    """Doubles up to 10 s, drawn anew each time (full jitter), so that consoles do not return in step."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_s(self) -> float:
        ceiling = min(LONGEST_S, SHORTEST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return self._rng.uniform(SHORTEST_S, max(SHORTEST_S, ceiling))
