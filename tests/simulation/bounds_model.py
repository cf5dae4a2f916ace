"""What tenants and long prompts may take, worked out from the batch alone."""

from typing import Any


class BoundsModel:
    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        #: Requests whose prompt was long when they were admitted.
        self._long: set[Any] = set()

    def joined(self, request: Any, computed: int) -> None:
        """Once for each admission, ``computed`` being the tokens that it brought or found."""
        self._long.discard(request)
        if request.total_tokens - computed > self._scheduler.limits.long_prefill_tokens:
            self._long.add(request)

    def check_admitted(self, plan: Any) -> None:
        """In turn: each was within its tenant's share and both bounds on long prompts when it joined."""
        scheduler = self._scheduler
        joined = {admission.id for admission in plan.admitted}
        running = [request for request in scheduler.running.values() if request.id not in joined]
        starts = {chunk.request.id: chunk.start for chunk in plan.chunks}
        for admission in plan.admitted:
            request = scheduler.get(admission.id)
            assert not self._over_share(request, running, request.block_table, 0), (
                f"{request.id} was admitted past its tenant's share"
            )
            self.joined(request, starts[request.id])
            if request in self._long:
                assert self.long_reason(request, running) is None, f"{request.id} is one long prompt too many"
            running.append(request)

    def long_reason(self, request: Any, running: list[Any]) -> str | None:
        prefills = [other for other in running if other in self._long and other.is_prefilling]
        limits = self._scheduler.limits
        own = limits.of_tenant(request.tenant).long_prefills
        if own is not None and sum(other.tenant == request.tenant for other in prefills) >= own:
            return "tenant"
        return "long_prefill" if len(prefills) >= limits.max_long_prefills else None

    def long_reason_now(self, request: Any) -> str | None:
        """Why this waiting request waits for others to prefill, if its prompt may be long."""
        if request.total_tokens - request.host_tokens <= self._scheduler.limits.long_prefill_tokens:
            return None
        return self.long_reason(request, list(self._scheduler.running.values()))

    def over_share(self, request: Any, hit: list[int]) -> bool:
        """Whether this waiting request would take its tenant past its share."""
        size = self._scheduler.pool.block_size
        fresh = -(-(request.total_tokens + 1) // size) - len(hit)
        return self._over_share(request, list(self._scheduler.running.values()), hit, fresh)

    def _over_share(self, request: Any, running: list[Any], table: list[int], fresh: int) -> bool:
        share = self._scheduler.limits.of_tenant(request.tenant).kv_share
        tables = [other.block_table for other in running if other.tenant == request.tenant]
        if share is None or not tables:
            return False
        return len({*table}.union(*tables)) + fresh > int(share * self._scheduler.pool.total + 1e-9)
