"""Counter-based random bits: the same for a seed and a position, whatever was drawn before and wherever."""

_MASK = (1 << 64) - 1


def draw_key(seed: int, position: int) -> int:
    """64 bits for the draw of the token at ``position``; ``seed`` is any integer."""
    return _mixed(_mixed(seed & _MASK) + position)


def choice_seed(seed: int, index: int) -> int:
    """The seed of one of several choices of a request. The first has the request's own, so that it is what
    it would have been alone; the result fits 63 bits."""
    return seed if index == 0 else _mixed(_mixed(seed & _MASK) ^ index) >> 1


def _mixed(state: int) -> int:
    """One step of the SplitMix64 generator: a bijection on 64 bits that scatters neighbours."""
    z = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
