"""Who is kept out by other bounds than room: a tenant's limits, and how many long prompts prefill at once.

Nobody else waits for those: they are passed over, and what is behind them is not counted as having passed.
"""

from collections import Counter
from collections.abc import Iterable

from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.prefix import Hit
from infer_engine.core.request import Request
from infer_engine.protocol import WaitingReason

#: Of the prompts that may be long so many are looked up after the bound is reached: the prefix cache may have
#: most of one.
MOST_LONG_TRIED = 4


class Barriers:
    """As of one round of admission to the batch ``running``."""

    def __init__(self, limits: Limits, pool: BlockPool, running: Iterable[Request]) -> None:
        #: Tenants none of whose requests can be admitted, and none of whose long prompts.
        self.tenants: set[str] = set()
        self.long_tenants: set[str] = set()
        #: No long prompt can be admitted.
        self.long = False
        self._limits = limits
        self._pool = pool
        self._running = list(running)
        self._by_tenant: dict[str, list[Request]] | None = None
        self._kept_out: set[Request] = set()
        self._long_tried = 0

    def bars(self, tenant: str, *, long: bool) -> bool:
        return tenant in self.tenants or (long and (self.long or tenant in self.long_tenants))

    def passes_over(self, request: Request) -> bool:
        return request in self._kept_out

    def reason(self, tenant: str, *, long: bool) -> WaitingReason | None:
        """Of those who are barred without having been looked at."""
        if tenant in self.tenants or (long and tenant in self.long_tenants):
            return "tenant"
        return "long_prefill" if long and self.long else None

    def joined(self, request: Request) -> None:
        self._running.append(request)
        if self._by_tenant is not None:
            self._by_tenant.setdefault(request.tenant, []).append(request)

    def check(self, request: Request, hit: Hit, fresh: int, to_compute: int) -> WaitingReason | None:
        """What keeps it out, though there may be room for the ``fresh`` blocks behind its hit; its like are
        barred from then on."""
        reason = self._of_tenant(request, hit, fresh)
        if reason is None and to_compute > self._limits.long_prefill_tokens:
            reason = self._of_long(request.tenant)
        if reason is not None:
            self._kept_out.add(request)
        return reason

    def _of_tenant(self, request: Request, hit: Hit, fresh: int) -> WaitingReason | None:
        share = self._limits.of_tenant(request.tenant).kv_share
        if share is None:
            return None
        blocks = int(share * self._pool.total + 1e-9)
        tables = [other.block_table for other in self._of(request.tenant)]
        # Without the exemption of a tenant of whom nothing runs, a large request would wait for ever.
        if not tables or sum(map(len, tables)) + len(hit.blocks) + fresh <= blocks:
            return None
        # What several of its requests share counts once.
        if len(set(hit.blocks).union(*tables)) + fresh <= blocks:
            return None
        self.tenants.add(request.tenant)
        return "tenant"

    def _of(self, tenant: str) -> list[Request]:
        if self._by_tenant is None:
            self._by_tenant = {}
            for request in self._running:
                self._by_tenant.setdefault(request.tenant, []).append(request)
        return self._by_tenant.get(tenant, [])

    def _of_long(self, tenant: str) -> WaitingReason | None:
        prefills = Counter(
            other.tenant for other in self._running if other.long_prefill and other.is_prefilling
        )
        most = self._limits.of_tenant(tenant).long_prefills
        if most is not None and prefills[tenant] >= most:
            self.long_tenants.add(tenant)
            return "tenant"
        if prefills.total() < self._limits.max_long_prefills:
            return None
        self._long_tried += 1
        self.long = self._long_tried >= MOST_LONG_TRIED
        return "long_prefill"
