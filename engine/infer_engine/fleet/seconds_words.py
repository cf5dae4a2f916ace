"""Seconds in sentences for operators: no more digits than anybody acts on."""


def seconds_words(value_s: float) -> str:
    """``under 0.01 s``, ``0.25 s``, ``1.3 s``, ``12 s``."""
    if value_s <= 0:
        return "0 s"
    if value_s < 0.01:
        return "under 0.01 s"
    if value_s < 0.995:
        return f"{value_s:.2f} s"
    return f"{value_s:.1f} s" if value_s < 9.95 else f"{value_s:.0f} s"
