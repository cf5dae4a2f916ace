"""What the next minute brings, if what came in the last one comes again: a coarse replay of replicas, pure.

Each replica goes through its steps by the rules of admission (marks, shares, long prefills, turns of the
tenants), with a function of the chunks for how long a step takes. Preemption and the prefix cache beyond what
is known of those who wait are left out: it is a forecast.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from infer_engine.protocol import TenantLimits, Tier

#: Seconds of a step that computes, for each sequence, tokens ``start .. start + count``.
StepTime = Callable[[Sequence[tuple[int, int]]], float]
#: How many behind a blocked head are tried in one step.
LOOK_AHEAD = 32
TIERS: tuple[Tier, ...] = ("interactive", "batch")


@dataclass(slots=True, eq=False)
class Job:
    """One request, now or to come. Seconds count from now, so who is here arrived before 0."""

    tenant: str
    tier: Tier
    arrival_s: float
    #: Tokens known of it, and of them those without KV.
    known_tokens: int
    prefill_tokens: int
    output_tokens: int
    running: bool = False
    #: When it was admitted; before 0 for those who run already, None while it waits.
    admitted_s: float | None = None
    finished_s: float | None = None
    long: bool = False
    #: Its blocks times the seconds for which it held them.
    block_s: float = 0.0

    def blocks(self, block_size: int) -> int:
        return -(-(self.known_tokens + 1) // block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is in force."""

    limits: Callable[[str], TenantLimits]
    shed: bool = False


@dataclass(slots=True, eq=False)
class Site:
    """One replica."""

    total_blocks: int
    block_size: int
    marks: Mapping[Tier, int]
    slots: int
    token_budget: int
    long_tokens: int
    max_long_prefills: int
    max_passes: int
    step_s: StepTime
    rules: Rules
    now_s: float = 0.0
    running: list[Job] = field(default_factory=list[Job])
    waiting: list[Job] = field(default_factory=list[Job])
    _charged: Counter[str] = field(default_factory=Counter[str])
    _passed: Counter[Job] = field(default_factory=Counter[Job])

    def begin(self, jobs: Iterable[Job]) -> None:
        """Those who are here: who runs, in order, and who waits."""
        for job in jobs:
            if job.running and not (self.rules.shed and job.tier == "batch"):
                self.running.append(job)
                self._charged[job.tenant] += job.known_tokens
                continue
            if job.running:  # preempted: all of it is to be computed again
                job.running, job.prefill_tokens = False, job.known_tokens
            self.waiting.append(job)

    @property
    def load(self) -> tuple[int, int]:
        """The least is where the next arrival goes: tokens to prefill, then sequences."""
        jobs = (*self.running, *self.waiting)
        return sum(job.prefill_tokens for job in jobs), len(jobs)

    def advance(self, until_s: float) -> None:
        """Step until then; the last step may end later."""
        while self.now_s < until_s:
            if not self._step(until_s):
                self.now_s = until_s

    # --- a step --------------------------------------------------------------------------------------------

    def _step(self, until_s: float) -> bool:
        """False when there is nothing to compute."""
        decodes = [job for job in self.running if not job.prefill_tokens]
        chunks = self._prefills(self.token_budget - len(decodes))
        took_s = self.step_s(
            [(job.known_tokens - 1, 1) for job in decodes]
            + [(job.known_tokens - job.prefill_tokens, count) for job, count in chunks.items()]
        )
        if took_s <= 0:
            return False
        steps = 1
        if not chunks:
            # Nothing changes before somebody ends or somebody comes.
            steps = max(1, min(job.output_tokens for job in decodes))
            steps = min(steps, max(1, int((until_s - self.now_s) / took_s) + 1))
        self.now_s += took_s * steps
        for job in self.running:
            job.block_s += job.blocks(self.block_size) * took_s * steps
        for job, count in chunks.items():
            job.prefill_tokens -= count
            if not job.prefill_tokens:
                self._emit(job, 1)
        for job in decodes:
            self._emit(job, steps)
        self.running = [job for job in self.running if job.finished_s is None]
        return True

    def _prefills(self, spare: int) -> dict[Job, int]:
        """Tokens that each prompt computes in this step, of ``spare``. Where short prompts prefill, or
        requests wait, long ones get half of it together, and what is left over in the end."""
        prefilling = [job for job in self.running if job.prefill_tokens]
        halve = bool(self.waiting) or any(not job.long for job in prefilling)
        for_long = (spare + 1) // 2
        counts: dict[Job, int] = {}
        for job in prefilling:
            count = min(job.prefill_tokens, spare, for_long if halve and job.long else spare)
            for_long -= count if job.long else 0
            counts[job] = count
            spare -= count
        spare = self._admit(spare, counts)
        for job in prefilling:
            more = min(job.prefill_tokens - counts[job], spare)
            counts[job] += more
            spare -= more
        return {job: count for job, count in counts.items() if count > 0}

    def _emit(self, job: Job, tokens: int) -> None:
        job.known_tokens += tokens
        job.output_tokens -= tokens
        self._charged[job.tenant] += tokens
        if job.output_tokens <= 0:
            job.finished_s = self.now_s

    # --- admission -----------------------------------------------------------------------------------------

    def _admit(self, left: int, counts: dict[Job, int]) -> int:
        """Who joins, with what it computes at once in ``counts``; what is left of the budget then."""
        if not self.waiting:
            return left
        used = sum(job.blocks(self.block_size) for job in self.running)
        for tier in TIERS[:1] if self.rules.shed else TIERS:
            head: Job | None = None
            looked = 0
            for job in self._in_turn(tier):
                if left <= 0 or len(self.running) >= self.slots:
                    return left
                if head is not None and (self._passed[head] >= self.max_passes or looked >= LOOK_AHEAD):
                    break
                if self._kept_out(job):
                    continue
                looked += head is not None
                needs = job.blocks(self.block_size)
                over = self.running and used + needs > self.marks[tier]
                if over or used + needs > self.total_blocks:
                    head = head or job
                    continue
                if head is not None:
                    self._passed[head] += 1
                used += needs
                self._join(job)
                counts[job] = min(left, job.prefill_tokens)
                left -= counts[job]
            if head is not None:
                break
        return left

    def _join(self, job: Job) -> None:
        job.long = job.prefill_tokens > self.long_tokens
        job.running = True
        if job.admitted_s is None:
            job.admitted_s = self.now_s
        self.waiting.remove(job)
        self.running.append(job)
        self._charged[job.tenant] += job.prefill_tokens

    def _in_turn(self, tier: Tier) -> list[Job]:
        """First come, first served within a tenant; the tenant that was served least first."""
        waiting = [job for job in self.waiting if job.tier == tier]
        if len({job.tenant for job in waiting}) < 2:
            return waiting
        charged = Counter(self._charged)
        order: list[Job] = []
        queues: dict[str, list[Job]] = {}
        for job in waiting:
            queues.setdefault(job.tenant, []).append(job)
        while queues:
            tenant = min(queues, key=lambda name: (charged[name], queues[name][0].arrival_s))
            job = queues[tenant].pop(0)
            charged[tenant] += job.prefill_tokens
            order.append(job)
            if not queues[tenant]:
                del queues[tenant]
            if len(order) >= 2 * LOOK_AHEAD:
                break
        return order

    def _kept_out(self, job: Job) -> bool:
        """By its tenant's limits, or by long prompts that prefill: nobody waits for it then."""
        limits = self.rules.limits(job.tenant)
        if limits.kv_share is not None:
            held = sum(each.blocks(self.block_size) for each in self.running if each.tenant == job.tenant)
            share = int(limits.kv_share * self.total_blocks + 1e-9)
            if held and held + job.blocks(self.block_size) > share:
                return True
        if job.prefill_tokens <= self.long_tokens:
            return False
        long = Counter(each.tenant for each in self.running if each.long and each.prefill_tokens)
        if limits.long_prefills is not None and long[job.tenant] >= limits.long_prefills:
            return True
        return long.total() >= self.max_long_prefills


def look_ahead(sites: Sequence[Site], arrivals: Iterable[Job], horizon_s: float) -> list[Job]:
    """Go on for ``horizon_s`` with ``arrivals``, in order, each where the load is least when it comes; those
    who came. The sites have begun."""
    came: list[Job] = []
    for job in arrivals:
        for site in sites:
            site.advance(job.arrival_s)
        least = min(sites, key=lambda site: site.load)
        least.waiting.append(job)
        came.append(job)
    for site in sites:
        site.advance(horizon_s)
    return came


def waits_s(jobs: Iterable[Job], horizon_s: float) -> list[float]:
    """How long each waited for admission, those that still wait included, the shortest first. Who was
    admitted before now is not asked."""
    return sorted(
        (horizon_s if job.admitted_s is None else min(job.admitted_s, horizon_s)) - job.arrival_s
        for job in jobs
        if job.admitted_s is None or job.admitted_s >= 0
    )
