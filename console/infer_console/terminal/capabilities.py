"""What the terminal can show, as far as its environment tells: colours, characters, and whether tmux is in
between."""

from collections.abc import Mapping
from typing import NamedTuple

#: What Python's own start puts into LC_CTYPE where the locale was C (PEP 538).
_COERCED = ("c.utf-8", "c.utf8", "utf-8")


class Capabilities(NamedTuple):
    #: No drawing at all: ``TERM=dumb`` or none.
    dumb: bool
    ascii_only: bool
    tmux: bool


def capabilities(environment: Mapping[str, str], *, ascii_only: bool = False) -> Capabilities:
    """``ascii_only`` is the operator's own word; else the locale decides."""
    return Capabilities(
        dumb=environment.get("TERM", "") in ("", "dumb"),
        ascii_only=ascii_only or not is_utf8(environment),
        tmux=bool(environment.get("TMUX")) or environment.get("TERM", "").startswith("tmux"),
    )


def is_utf8(environment: Mapping[str, str]) -> bool:
    """Whether the locale's characters are UTF-8. Where nothing is set, which is so in many containers, the
    terminal most likely is."""
    given = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if given.lower() in _COERCED and not environment.get("LC_ALL"):
        given = environment.get("LANG") or given
    if not given:
        return True
    return given.lower().replace("-", "").endswith("utf8") or ".utf8" in given.lower().replace("-", "")
