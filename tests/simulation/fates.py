"""What a simulated request asks for, and what must become of it."""

import random
from dataclasses import dataclass
from typing import Any

from simulation.fake_runner import token_at


@dataclass
class Fate:
    spec: dict[str, Any]
    expected: list[int]
    #: It ends at a stop token, not at its length.
    stops: bool
    request: Any = None
    ended: str | None = None
    #: The tokens it has while no scheduler holds it; None while one does, and once it has ended.
    away: list[int] | None = None


def draw_fate(
    draw: random.Random, *, key: int, now_s: float, capacity: int, prompt_share: int, context: int
) -> Fate:
    """A request for a pool of ``capacity`` tokens, its prompt mostly within one part in ``prompt_share`` of
    it; some come late, some bring tokens from elsewhere, some are longer than the pool or the context, many
    begin alike."""
    longest = max(1, capacity // prompt_share)
    prompt = draw.randint(1, longest) if draw.random() < 0.9 else draw.randint(1, capacity + 4)
    max_tokens = draw.choice([1, 4, 16, 50, draw.randint(1, max(1, capacity // 2))])
    if draw.random() < 0.95:
        # Few are refused for their length: they would be all there is in a small pool.
        prompt = min(prompt, capacity - 1, context - 1)
        max_tokens = min(max_tokens, context - prompt)
    expected = [token_at(key, position) for position in range(max_tokens)]
    stops = draw.random() < 0.3
    stop_token = expected[draw.randrange(max_tokens)]
    if stops:
        expected = expected[: expected.index(stop_token) + 1]
    shared = draw.randint(0, prompt) if draw.random() < 0.6 else 0
    family = draw.randrange(1, 4)
    emitted = draw.randrange(len(expected)) if draw.random() < 0.1 else 0
    return Fate(
        spec={
            "prompt": [family if position < shared else key * 1009 + position for position in range(prompt)],
            "cache_salt": draw.choice(["", "", "other tenant"]),
            "max_tokens": max_tokens,
            "arrival_s": now_s - (draw.random() if draw.random() < 0.2 else 0.0),
            "tenant": random.Random(key * 31).choice(["default", "default", "flood", "flood", "rare"]),
            "tier": "batch" if draw.random() < 0.25 else "interactive",
            "deadline_s": _deadline_s(key, now_s),
            "priority": draw.choice([0, 0, 0, 0, 1, -1]),
            "stop_token_ids": frozenset([stop_token] if stops else []),
            "sampling": key,
        },
        expected=expected,
        stops=stops,
        away=expected[:emitted],
    )


def _deadline_s(key: int, now_s: float) -> float | None:
    """A few have one, from passed already to some hundred steps away."""
    draw = random.Random(key)
    return now_s + draw.choice([-1.0, 0.0, 0.05, 0.5, 3.0]) if draw.random() < 0.08 else None
