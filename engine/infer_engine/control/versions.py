"""Which version of a spec a command is for."""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: The specs of all replicas together, which changes of the whole fleet are made to.
REPLICAS = "replicas"

#: The version of ``fleet``, ``replica:ID`` or ``tenant:NAME``; KeyError when there is no such thing.
VersionOf = Callable[[str], str]


@dataclass(slots=True)
class CountedVersions:
    """Versions that grow by one with every change that was told. Of what was never changed, it is that of the
    server's start."""

    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    _counts: dict[str, int] = field(default_factory=dict[str, int])

    def version(self, target: str) -> str:
        return f"{self.epoch}-{self._counts.get(target, 0)}"

    def changed(self, target: str) -> None:
        self._counts[target] = self._counts.get(target, 0) + 1


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
