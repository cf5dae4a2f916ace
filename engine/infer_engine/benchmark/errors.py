"""What can go wrong while measuring, in words for whoever measures."""


class BenchError(RuntimeError):
    """A part could not be measured; the others still can."""
