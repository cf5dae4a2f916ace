"""The lease on the fleet: who holds it makes changes to all of it that take several steps, and nobody else
gets in between."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from infer_engine.control.problems import echo
from infer_engine.fleet.generation import Refusal, refuse
from infer_engine.protocol import Lease, LeaseHolder

TTL_S = 30.0
#: Digits of the largest token that is read.
_MOST_DIGITS = 18


@dataclass(slots=True)
class Leases:
    """One lease there is at most. ``wall`` gives Unix seconds and ``clock`` monotonic ones: a lease ends by
    the second, and says so by the first."""

    wall: Callable[[], float]
    clock: Callable[[], float]
    _held: Lease | None = None
    _ends_s: float = 0.0
    _last_token: int = 0

    def current(self) -> Lease | None:
        if self._held is not None and self.clock() >= self._ends_s:
            self._held = None
        return self._held

    def holder(self) -> LeaseHolder | None:
        """What everybody may know of it."""
        held = self.current()
        if held is None:
            return None
        return LeaseHolder(holder=held.holder, purpose=held.purpose, expires_at=held.expires_at)

    def warning(self, token: str | None) -> str | None:
        """Of a fleet-wide change that would be refused now."""
        held = self.current()
        return None if held is None or token is not None else f"refused while it lasts: {self._said(held)}"

    def acquire(self, holder: str, purpose: str) -> Lease:
        """Refusal (409) while it is held, be it by the same principal: that may be another console."""
        held = self.current()
        if held is not None:
            raise self._taken(held)
        # Higher than all before it, those that a server before this one gave out included.
        self._last_token = max(self._last_token + 1, int(self.wall() * 1000))
        self._held = Lease(
            id=secrets.token_hex(8),
            token=self._last_token,
            holder=holder,
            purpose=purpose,
            expires_at=self.wall() + TTL_S,
        )
        self._ends_s = self.clock() + TTL_S
        return self._held

    def renew(self, lease: str, holder: str) -> Lease:
        """For another TTL_S from now, under the same token. Refusal (409) when it has ended."""
        held = self.own(lease, holder)
        self._held = Lease(
            id=held.id,
            token=held.token,
            holder=held.holder,
            purpose=held.purpose,
            expires_at=self.wall() + TTL_S,
        )
        self._ends_s = self.clock() + TTL_S
        return self._held

    def release(self, lease: str, holder: str) -> Lease:
        held = self.own(lease, holder)
        self._held = None
        return held

    def check(self, token: str | None, fleet_wide: bool) -> None:
        """Refusal (409) for a token that is not that of the lease there is, and for a change of the whole
        fleet by somebody else than its holder."""
        held = self.current()
        if token is not None:
            if not (token.isascii() and token.isdigit() and len(token) <= _MOST_DIGITS):
                raise refuse(
                    400,
                    "invalid_field",
                    "Lease-Token does not fit.",
                    f"must be a whole number, got {echo(token)}.",
                    field="lease-token",
                )
            if held is None or held.token != int(token):
                raise refuse(
                    409,
                    "lease_lost",
                    "The lease of this token has ended.",
                    numbers={"token": float(int(token))},
                )
        elif fleet_wide and held is not None:
            raise self._taken(held)

    def own(self, lease: str, holder: str) -> Lease:
        """The lease, while it is theirs. Refusal (409) when it is not."""
        held = self.current()
        if held is None or held.id != lease or held.holder != holder:
            raise refuse(409, "lease_lost", "This lease has ended, or is somebody else's.")
        return held

    def _taken(self, held: Lease) -> Refusal:
        left_s = max(0.0, self._ends_s - self.clock())
        refusal = refuse(
            409,
            "lease_held",
            "Somebody is changing the fleet.",
            self._said(held),
            numbers={"ends_in_s": left_s},
        )
        refusal.retry_after_s = left_s
        return refusal

    def _said(self, held: Lease) -> str:
        left_s = max(0.0, self._ends_s - self.clock())
        purpose = f" for {held.purpose}" if held.purpose else ""
        return f"{held.holder} holds the lease{purpose}; it ends in {left_s:.0f} s unless it is renewed."
