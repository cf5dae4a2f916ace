"""Scaled rotary positions: how a model that was trained on short contexts turns its queries and keys in long
ones.

Whatever the scheme, it comes to a divisor for the frequency of each rotated pair, and one factor on the
rotated values.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """``divisors`` has head_dim / 2 entries: pair ``i`` turns by ``base ** (-2 i / head_dim) / divisors[i]``
    a position. Queries and keys are multiplied by ``magnitude`` as they are turned."""

    divisors: tuple[float, ...]
    magnitude: float = 1.0


def linear_scaling(head_dim: int, factor: float) -> RopeScaling:
    """Every position counts as a ``factor``-th."""
    return RopeScaling(divisors=(factor,) * (head_dim // 2))


def llama3_scaling(
    head_dim: int,
    base: float,
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
) -> RopeScaling:
    """Llama 3.1's: pairs that turn fewer than ``low_freq_factor`` times in the original context are slowed
    by ``factor``, those that turn more than ``high_freq_factor`` times not at all, and between them the
    frequencies are blended."""

    def divisor(pair: int) -> float:
        turns = original_context * base ** (-2 * pair / head_dim) / (2 * math.pi)
        kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        kept = min(1.0, max(0.0, kept))
        return 1.0 / (kept + (1.0 - kept) / factor)

    return RopeScaling(divisors=tuple(divisor(pair) for pair in range(head_dim // 2)))


def yarn_scaling(
    head_dim: int,
    base: float,
    *,
    factor: float,
    original_context: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    magnitude: float | None = None,
) -> RopeScaling:
    """YaRN: as Llama 3.1's, but blended linearly over the *number* of the pair, between those that turn
    ``beta_fast`` and ``beta_slow`` times; attention is sharpened by ``magnitude``, 0.1 ln(factor) + 1 unless
    given."""

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(original_context / (times * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = last - first or 0.001

    def divisor(pair: int) -> float:
        slowed = min(1.0, max(0.0, (pair - first) / width))
        return 1.0 / (1.0 - slowed + slowed / factor)

    if magnitude is None:
        magnitude = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return RopeScaling(divisors=tuple(divisor(pair) for pair in range(head_dim // 2)), magnitude=magnitude)
