"""Which tenant crowds the others, and since when."""

from collections.abc import Sequence
from dataclasses import dataclass

from infer_engine.protocol import TenantUse

#: It holds at least this share of the pools, and more than all others together.
SHARE = 0.25
#: It may do so for a moment less, as its requests end and come: that is no end of it.
GAP_S = 10.0
#: So long after the last look nothing is known of what was between.
UNSEEN_S = 60.0


def crowding(rows: Sequence[TenantUse], pool_blocks: int) -> str | None:
    """The tenant that does. One that is alone crowds nobody."""
    first = max((row for row in rows if row.tenants == 1), key=lambda row: row.kv_blocks, default=None)
    if first is None or len(rows) < 2 or not pool_blocks:
        return None
    held = sum(row.kv_blocks for row in rows)
    return first.tenant if first.kv_blocks * 2 > held and first.kv_blocks >= SHARE * pool_blocks else None


@dataclass(slots=True)
class Crowding:
    """``at`` everywhere is Unix seconds."""

    _tenant: str | None = None
    _since: float = 0.0
    _looked_at: float = 0.0
    #: When it was first seen to be over; None while it is not.
    _over_at: float | None = None

    def look(self, rows: Sequence[TenantUse], pool_blocks: int, at: float) -> tuple[str, float] | None:
        """Who crowds now, and since when."""
        if at - self._looked_at > UNSEEN_S or (self._over_at is not None and at - self._over_at > GAP_S):
            self._tenant = None
        self._looked_at = at
        tenant = crowding(rows, pool_blocks)
        if tenant is None:
            self._over_at = at if self._over_at is None else self._over_at
            return None
        if tenant != self._tenant:
            self._tenant, self._since = tenant, at
        self._over_at = None
        return tenant, self._since
