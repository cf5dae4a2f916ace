"""Who may connect: so many connections in all, so many from one address."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

#: Connections beyond the limits that are told why, at any moment; whoever comes after those is cut
#: without a word.
MOST_REFUSALS = 128

#: Taken, to be told that it is too much, to be cut.
Verdict = Literal["taken", "refused", "cut"]


@dataclass(slots=True, kw_only=True)
class Connections:
    """``per_client`` None: one address may have all of them. An address is None where there is none (a unix
    socket): only the total counts."""

    most: int
    per_client: int | None = None
    #: Refused and cut since the start.
    turned_away: int = 0
    _open: int = 0
    _refusing: int = 0
    _by_address: Counter[str] = field(default_factory=Counter[str])

    @property
    def open(self) -> int:
        """Those that were taken and have not ended."""
        return self._open

    def enter(self, address: str | None) -> Verdict:
        """To be followed by ``leave`` with what it says, once the connection has ended."""
        too_many = self._open >= self.most
        if address is not None and self.per_client is not None:
            too_many = too_many or self._by_address[address] >= self.per_client
        if not too_many:
            self._open += 1
            if address is not None:
                self._by_address[address] += 1
            return "taken"
        self.turned_away += 1
        if self._refusing >= MOST_REFUSALS:
            return "cut"
        self._refusing += 1
        return "refused"

    def leave(self, address: str | None, verdict: Verdict) -> None:
        if verdict == "refused":
            self._refusing -= 1
        elif verdict == "taken":
            self._open -= 1
            if address is not None:
                self._by_address[address] -= 1
                if not self._by_address[address]:
                    del self._by_address[address]
