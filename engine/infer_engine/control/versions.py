"""Which version of a spec a command is for."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: The specs of all replicas together, which changes of the whole fleet are made to.
REPLICAS = "replicas"

#: The version of ``fleet``, ``replica:ID`` or ``tenant:NAME``; KeyError when there is no such thing.
VersionOf = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Versions:
    version_of: VersionOf
    replica_ids: Callable[[], Sequence[str]]

    def version(self, target: str) -> str | None:
        """Of a spec, or of all replicas' together; None when there is no such thing."""
        try:
            if target != REPLICAS:
                return self.version_of(target)
            parts = [f"{each}={self.version_of(f'replica:{each}')}" for each in self.replica_ids()]
        except KeyError:
            return None
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
