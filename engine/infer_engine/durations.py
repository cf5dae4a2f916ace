"""Durations as people read and write them."""


def show_duration(seconds: float) -> str:
    """``90`` as ``1m30s``."""
    if seconds < 60:
        return f"{seconds:g}s"
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return "".join(f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if count)
