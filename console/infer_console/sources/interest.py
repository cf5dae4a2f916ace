"""What of the fleet is looked at closely."""

from collections.abc import Iterable
from dataclasses import dataclass

#: Parts of a replica that only those who look at it are sent.
DETAILS = ("roster", "blocks", "steps")
#: Replicas with detail at once: a console is sent what it looks at, not the fleet.
MAX_REPLICAS = 16
DEFAULT_HZ = 4.0


@dataclass(frozen=True, slots=True)
class Interest:
    """The watch stream's filter. Every replica's status comes anyway; ``detail`` only for ``replicas``."""

    replicas: tuple[str, ...] = ()
    detail: tuple[str, ...] = ("roster", "blocks")
    hz: float = DEFAULT_HZ

    @classmethod
    def of(cls, replicas: Iterable[str], detail: Iterable[str], hz: float) -> "Interest":
        """Raise ValueError for a detail that does not exist."""
        wanted = tuple(dict.fromkeys(detail))
        unknown = [name for name in wanted if name not in DETAILS]
        if unknown:
            raise ValueError(f"detail {unknown[0]!r} is none of {', '.join(DETAILS)}")
        return cls(tuple(sorted(set(replicas)))[:MAX_REPLICAS], wanted, max(0.5, min(10.0, hz)))
