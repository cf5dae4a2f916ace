"""How many requests of each tenant were taken within the last minute, and whether one more may be."""

from collections import OrderedDict, deque

PERIOD_S = 60.0
#: Tenants remembered at most. Of more, those who asked last the longest ago begin anew.
MOST_TENANTS = 10_000


class TenantRate:
    """In no minute, wherever it begins, are more taken than the limit that holds at its end. Keeps one number
    for each request taken in the last minute. Moments are seconds of any one clock."""

    def __init__(self, most_tenants: int = MOST_TENANTS) -> None:
        self._most_tenants = most_tenants
        self._taken: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        """Tenants remembered."""
        return len(self._taken)

    def take(self, tenant: str, per_minute: int | None, now_s: float) -> float | None:
        """Count one request, or the seconds after which it may be asked again; None where it was taken. No
        limit (None) counts too, so that one set later holds at once."""
        taken = self._taken.setdefault(tenant, deque())
        self._taken.move_to_end(tenant)
        if len(self._taken) > self._most_tenants:
            self._taken.popitem(last=False)
        while taken and taken[0] <= now_s - PERIOD_S:
            taken.popleft()
        if per_minute is not None and len(taken) >= per_minute:
            # So many must be older than a minute that there is room for one.
            return taken[len(taken) - per_minute] + PERIOD_S - now_s
        # A clock that goes back must not leave what is never old enough behind what is.
        taken.append(max(now_s, taken[-1]) if taken else now_s)
        return None

    def copy(self) -> "TenantRate":
        """To try things on."""
        copied = TenantRate(self._most_tenants)
        copied._taken = OrderedDict((tenant, deque(taken)) for tenant, taken in self._taken.items())
        return copied

    @property
    def tenants(self) -> list[str]:
        return list(self._taken)

    def count(self, tenant: str, now_s: float) -> int:
        """Requests of the tenant taken within the last minute."""
        return sum(taken_s > now_s - PERIOD_S for taken_s in self._taken.get(tenant, ()))

    def give_back(self, tenant: str) -> None:
        """The request taken last was refused for another reason after all."""
        taken = self._taken.get(tenant)
        if taken:
            taken.pop()

    def forget_idle(self, now_s: float) -> None:
        """Drop the tenants of whom nothing was taken within the last minute."""
        idle = [name for name, taken in self._taken.items() if not taken or taken[-1] <= now_s - PERIOD_S]
        for name in idle:
            del self._taken[name]
