"""The next minute of this fleet under other rules: from who is here and what came lately to a forecast."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from infer_engine.fleet.ledger import Ledger
from infer_engine.fleet.outlook import Job, Rules, Site, StepTime, look_ahead, waits_s
from infer_engine.fleet.recent import Arrival, Recent
from infer_engine.fleet.tenant_rate import TenantRate
from infer_engine.fleet.tracked import Tracked
from infer_engine.protocol import TenantLimits
from infer_engine.replica.handle import ReplicaHandle

HORIZON_S = 60.0
#: Replicas that are gone through; of more, those with the most requests stand for all.
MOST_SITES = 16
#: Of one tenant on one replica, those who wait that are gone through; more would not come to their turn.
MOST_WAITING = 200
#: How much each answer that ended says of how long answers get.
_WEIGHT = 0.05


@dataclass(slots=True, kw_only=True)
class Minute:
    """What will have become of requests. Those of ``tenant`` are its, those of users beside it others."""

    tenant: str | None
    horizon_s: float
    block_size: int
    #: What is told of replicas stands for so many times as many.
    scale: float
    jobs: list[Job] = field(default_factory=list[Job])
    taken: int = 0
    refused_rate: int = 0
    refused_prompt: int = 0

    def its(self) -> list[Job]:
        return [job for job in self.jobs if job.tenant == self.tenant]

    def kv_blocks(self, jobs: list[Job]) -> float:
        """On the mean over it."""
        return sum(job.block_s for job in jobs) / self.horizon_s * self.scale

    def still_waiting(self, jobs: list[Job]) -> float:
        return sum(job.admitted_s is None or not job.running for job in jobs) * self.scale

    def wait_s(self, jobs: list[Job], share: float) -> float | None:
        """For admission; None where nobody waited or came."""
        waits = waits_s(jobs, self.horizon_s)
        return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else None


@dataclass(slots=True)
class OutlookDesk:
    handles: Mapping[str, ReplicaHandle]
    ledger: Ledger
    recent: Recent
    rate: TenantRate
    #: How long steps take; None while that is not known.
    step_time: Callable[[], StepTime | None]
    #: Of their ``max_tokens``, what answers use lately.
    _answer_share: float = 1.0

    def ended(self, request: Tracked) -> None:
        generation = request.generation
        if generation.finish_reason in ("stop", "length") and not generation.spec.synthetic:
            share = len(generation.emitted) / max(1, generation.spec.max_tokens)
            self._answer_share += _WEIGHT * (share - self._answer_share)

    def next_minute(
        self, limits: Callable[[str], TenantLimits], *, shed: bool, tenant: str | None = None
    ) -> Minute | None:
        """Under these rules; None where nobody can tell."""
        step_s = self.step_time()
        admitting = [handle for handle in self.handles.values() if handle.admits and handle.info is not None]
        if step_s is None or not admitting:
            return None
        chosen = sorted(admitting, key=lambda each: -len(self.ledger.on(each.id)))[:MOST_SITES]
        rules = Rules(limits=limits, shed=shed)
        info = chosen[0].info
        minute = Minute(
            tenant=tenant,
            horizon_s=HORIZON_S,
            block_size=info.block_size if info is not None else 16,
            scale=len(admitting) / len(chosen),
        )
        sites = [self._site(handle, step_s, rules, minute) for handle in chosen]
        minute.jobs += look_ahead(
            sites, self._arrivals(limits, minute, len(chosen) / len(admitting)), HORIZON_S
        )
        return minute

    def _site(self, handle: ReplicaHandle, step_s: StepTime, rules: Rules, minute: Minute) -> Site:
        info, limits = handle.info, handle.limits
        if info is None:
            raise RuntimeError(f"replica {handle.id} has not loaded")
        site = Site(
            total_blocks=info.kv_blocks,
            block_size=info.block_size,
            marks={
                "interactive": limits["admit_limit"],
                "batch": min(limits["admit_limit"], limits["batch_limit"]),
            },
            slots=handle.slots or limits["max_running"],
            token_budget=limits["token_budget"],
            long_tokens=limits["long_prefill_tokens"],
            max_long_prefills=limits["max_long_prefills"],
            max_passes=limits["max_passes"],
            step_s=step_s,
            rules=rules,
        )
        waiting: dict[str, int] = {}
        here: list[Job] = []
        for request in self.ledger.on(handle.id):
            job = self._job(request, limits["long_prefill_tokens"])
            minute.jobs.append(job)
            if not job.running:
                waiting[job.tenant] = waiting.get(job.tenant, 0) + 1
                if waiting[job.tenant] > MOST_WAITING:
                    continue
            here.append(job)
        site.begin(here)
        return site

    def _job(self, request: Tracked, long_tokens: int) -> Job:
        generation, now_s = request.generation, self.ledger.clock()
        spec = generation.spec
        admitted_s = generation.admitted_s
        asked = max(1, round(spec.max_tokens * self._answer_share))
        return Job(
            tenant=spec.tenant,
            tier=spec.tier,
            arrival_s=generation.arrived_s - now_s,
            known_tokens=request.known_tokens,
            prefill_tokens=request.queued_prefill_tokens(),
            output_tokens=max(1, asked - len(generation.emitted)),
            running=request.state == "running",
            admitted_s=None if admitted_s is None else admitted_s - now_s,
            # As it was when it was admitted.
            long=request.known_tokens - (request.core.cached_tokens if request.core else 0) > long_tokens,
        )

    def _arrivals(self, limits: Callable[[str], TenantLimits], minute: Minute, share: float) -> Iterator[Job]:
        """Past the door; ``share`` of them, for so many of the replicas are gone through."""
        now_s, rate = self.ledger.clock(), self.rate.copy()
        for number, (at_s, arrival) in enumerate(self.recent.again(now_s, HORIZON_S)):
            tier = arrival.tier
            if not arrival.synthetic:
                own = limits(arrival.tenant)
                if not self._taken(arrival, own, rate, now_s + at_s, minute):
                    continue
                tier = own.tier or tier
            if int(number * share) == int((number + 1) * share):
                continue
            yield Job(
                tenant=arrival.tenant,
                tier=tier,
                arrival_s=at_s,
                known_tokens=arrival.prompt_tokens,
                prefill_tokens=arrival.prompt_tokens,
                output_tokens=max(1, round(arrival.max_tokens * self._answer_share)),
            )

    def _taken(
        self, arrival: Arrival, own: TenantLimits, rate: TenantRate, at_s: float, minute: Minute
    ) -> bool:
        """As at the door; counted where it is of the tenant asked about."""
        counted = arrival.tenant == minute.tenant
        if own.prompt_tokens is not None and arrival.prompt_tokens > own.prompt_tokens:
            minute.refused_prompt += counted
            return False
        if rate.take(arrival.tenant, own.requests_per_minute, at_s) is not None:
            minute.refused_rate += counted
            return False
        minute.taken += counted
        return True
