"""What must be true of every plan, worked out from the requests alone and not from how the scheduler
decides."""

from collections.abc import Set
from dataclasses import dataclass
from itertools import islice
from typing import Any

from infer_engine.core.admission import LOOK_AHEAD
from simulation.bounds_model import BoundsModel
from simulation.cache_model import CacheModel
from simulation.fair_model import FairModel, has_started
from simulation.states import state_of

#: Reasons of those who wait for others of their tenant, or of their kind.
BARRED = ("tenant", "long_prefill")


@dataclass(frozen=True)
class Before:
    """What the scheduler knew just before a step."""

    queue: list[Any]
    #: Those who waited in the batch tier and had not aged.
    batch_queue: set[Any]
    batch: list[Any]
    decoding: list[Any]
    #: Those of the batch who hold no block alone.
    sharers: set[Any]
    #: The states of those whose deadline has passed.
    late: list[str]


def look(scheduler: Any, now_s: float) -> Before:
    """Who is past the deadline is out of it."""
    batch = list(scheduler.running.values())
    # Only of those that started the order is not worked out anew.
    members = list(scheduler.waiting.members())
    queue = list(scheduler.waiting) if any(map(has_started, members)) else members
    late = [request for request in (*batch, *queue) if is_late(request, now_s)]
    if late:
        batch = [request for request in batch if request not in late]
        queue = [request for request in queue if request not in late]
    decoding = [request for request in batch if request.total_tokens - request.computed_tokens == 1]
    batch_queue = {request for request in queue if request.lane == "batch"}
    counts = scheduler.pool.ref_counts
    shared = {block for block, count in enumerate(counts) if count > 1}
    sharers = {request for request in batch if shared.issuperset(request.block_table)} if shared else set()
    return Before(
        queue=queue,
        batch_queue=batch_queue,
        batch=batch,
        decoding=decoding,
        sharers=sharers,
        late=[state_of(request, scheduler.pool) for request in late],
    )


def is_late(request: Any, now_s: float) -> bool:
    return request.deadline_s is not None and request.deadline_s <= now_s


def importance(request: Any, batch: list[Any]) -> tuple[bool, int, float, int]:
    """Larger is preempted earlier; of equals the later in the batch."""
    return (request.lane == "batch", -request.priority, request.arrival_s, batch.index(request))


class Oracle:
    def __init__(self, scheduler: Any, runner: Any) -> None:
        self.scheduler = scheduler
        self.cache = CacheModel(scheduler.pool, runner)
        self.fair = FairModel()
        self.bounds = BoundsModel(scheduler)
        self.passes: dict[str, int] = {}
        #: Who waits after the step that is being checked.
        self._waiting: list[Any] = []
        #: By how many steps the age bound was lowered at most.
        self.age_slack = 0
        #: Admissions past a blocked head, in all.
        self.passed = 0
        #: The largest that was ever allowed: a lowered limit does not undo passes.
        self.most_passes = scheduler.limits.max_passes

    def check_plan(self, plan: Any, before: Before, now_s: float, forced: Set[str]) -> None:
        """``forced`` were preempted without need."""
        self._waiting = list(self.scheduler.waiting.members())
        self._check_deadlines(plan, now_s)
        self.cache.check_plan(plan, self.scheduler)
        self._check_chunks(plan)
        self._check_decode(plan, before)
        self._check_budget_spent(plan)
        self._check_preempted(plan, before, forced)
        self._check_modes(plan)
        self._check_tiers(plan)
        self._check_exhausted(plan)
        self._check_admitted(plan)
        self.bounds.check_admitted(plan)
        self._check_line(plan, before)
        self._check_left_waiting(plan)
        assert plan.chunks or plan.finished or forced, "a step with work moved nothing"

    def check_commit(self, plan: Any) -> None:
        self.cache.check_commit(plan)

    def _check_chunks(self, plan: Any) -> None:
        size, budget = self.scheduler.pool.block_size, self.scheduler.limits.token_budget
        counts = [chunk.count for chunk in plan.chunks]
        assert all(count > 0 for count in counts), "an empty chunk"
        assert sum(counts) <= budget, f"{sum(counts)} tokens planned of {budget}"
        assert sum(counts) == plan.decode_tokens + plan.prefill_tokens, "the plan's sums are wrong"
        ids = [chunk.request.id for chunk in plan.chunks]
        assert len(set(ids)) == len(ids), "a request has two chunks"
        for chunk in plan.chunks:
            request = chunk.request
            end = chunk.start + chunk.count
            assert self.scheduler.running.get(request.id) is request, (
                f"{request.id} computes but does not run"
            )
            assert chunk.start == request.computed_tokens, f"{request.id} computes from {chunk.start}"
            assert end <= request.total_tokens, f"{request.id} computes tokens it does not have"
            assert chunk.samples == (end == request.total_tokens), f"{request.id} samples at the wrong moment"
            assert end <= len(request.block_table) * size, f"{request.id} writes past its blocks"
            written = request.block_table[chunk.start // size : -(-end // size)]
            assert all(map(self._is_its_own, written)), f"{request.id} writes to shared blocks"
        targets = [target for _, target in plan.copies]
        assert len(set(targets)) == len(targets), "a block is copied to twice"
        written = {block for chunk in plan.chunks for block in chunk.request.block_table}
        assert set(targets) <= written, "a block is copied to for nobody"

    def _is_its_own(self, block: int) -> bool:
        pool = self.scheduler.pool
        return pool.ref_counts[block] == 1 and block not in pool.index.contents

    def _check_decode(self, plan: Any, before: Before) -> None:
        chunks = {chunk.request.id: chunk.count for chunk in plan.chunks}
        for request in before.decoding:
            if request.state == "running":
                assert chunks.get(request.id) == 1, f"{request.id} decodes and got no token"

    def _check_budget_spent(self, plan: Any) -> None:
        """Without a preemption, a prompt is cut only where the budget ends."""
        cut = [chunk for chunk in plan.chunks if not chunk.samples]
        if cut and not plan.preempted:
            spent = sum(chunk.count for chunk in plan.chunks)
            assert spent == self.scheduler.limits.token_budget, (
                f"{cut[0].request.id} was cut with budget left"
            )

    def _check_preempted(self, plan: Any, before: Before, forced: Set[str]) -> None:
        """The least important went, and only from a full pool, and they stand first in line in order of
        rank."""
        scheduler = self.scheduler
        if not plan.preempted:
            return
        # Only batch that made room for interactive requests lets somebody in, and only those.
        victims = [scheduler.get(preemption.id) for preemption in plan.preempted]
        admitted = [scheduler.get(admission.id) for admission in plan.admitted]
        if admitted:
            assert plan.yielded == len(victims)
            assert {victim.lane for victim in victims} == {"batch"}, "a step that preempted admitted somebody"
            assert {request.lane for request in admitted} == {"interactive"}
        # Who fills the pool could never be admitted again.
        staying = [
            request
            for request in scheduler.running.values()
            if request in before.batch
            and -(-(request.total_tokens + 1) // scheduler.pool.block_size) <= scheduler.pool.total
        ]
        least = max((importance(request, before.batch) for request in staying), default=None)
        for victim, preemption in zip(victims, plan.preempted, strict=True):
            assert victim.state == "waiting", f"{victim.id} was preempted and is {victim.state}"
            if victim.id in forced:
                continue
            assert least is None or importance(victim, before.batch) >= least, (
                f"{victim.id} went before a lesser one"
            )
            assert preemption.freed_blocks > 0 or self.cache.enabled or victim in before.sharers
        for tier in ("interactive", "batch"):
            first = [victim.id for victim in reversed(victims) if victim.lane == tier]
            line = [request.id for request in scheduler.waiting.order(tier)]
            assert line[: len(first)] == first, f"the preempted {first} are not first in line"

    def _check_modes(self, plan: Any) -> None:
        """Swapped is where there is room, and where it is cheaper or forced."""
        host, swapped = self.scheduler.host, [each for each in plan.preempted if each.mode == "swap"]
        assert len(plan.swap_out) >= len(swapped)
        assert not swapped or host.choice != "recompute"
        for preemption in plan.preempted:
            victim = self.scheduler.get(preemption.id)
            assert (victim.host_tokens > 0) == (preemption.mode == "swap")
            assert preemption.redo_tokens == 0 or preemption.mode == "recompute"

    def _check_tiers(self, plan: Any) -> None:
        """No interactive request waits for room that batch takes, and no batch request beyond its age."""
        scheduler = self.scheduler
        pool, limits = scheduler.pool, scheduler.limits
        # One ages in a step, and the bound may have been lowered just now.
        longest = limits.age_steps + len(self._waiting) + self.age_slack
        for request in self._waiting:
            starves = plan.step - request.queued_step > longest and request.lane == "batch"
            assert not starves, f"{request.id} starves"
        whole = pool.total * pool.block_size
        batch = [
            request
            for request in scheduler.running.values()
            if request.lane == "batch" and request.total_tokens < whole
        ]
        if not batch or plan.preempted:
            return
        head = self._first_who_waits_for_room()
        if head is None:
            return
        others = [request for request in scheduler.running.values() if request not in batch]
        held = {block for request in others for block in request.block_table}
        hit = self.cache.longest_hit(head)
        needs = -(-(head.total_tokens + 1) // pool.block_size) - sum(block in held for block in hit)
        fits = len(held) + needs <= (limits.admit_limit if others else pool.total)
        spent = sum(chunk.count for chunk in plan.chunks) >= limits.token_budget
        waits_for_batch = fits and len(others) < limits.max_running and not plan.admitted and not spent
        assert not waits_for_batch, f"{head.id} waits for batch"

    def _first_who_waits_for_room(self) -> Any:
        """The first interactive request that neither its tenant's limits nor other long prompts keep out."""
        barred: set[str] = set()
        for request in self.scheduler.waiting.order("interactive"):
            if request.tenant in barred or self._is_barred(request):
                continue
            hit = self.cache.longest_hit(request)
            if self.bounds.over_share(request, hit):
                barred.add(request.tenant)
            elif not self.bounds.long_reason_now(request):
                return request
        return None

    def _check_deadlines(self, plan: Any, now_s: float) -> None:
        late = [
            request.id
            for request in (*self.scheduler.running.values(), *self._waiting)
            if is_late(request, now_s)
        ]
        assert not late, f"{late} are past their deadlines"
        assert all(finish.reason == "error" for finish in plan.finished)

    def _check_exhausted(self, plan: Any) -> None:
        for finish in plan.finished:
            if finish.error == "deadline_exceeded":
                continue
            assert (finish.reason, finish.error) == ("error", "kv_exhausted"), f"planning ended {finish}"
            assert finish.freed_blocks == self.scheduler.pool.total, f"{finish} had not all of the pool"
            assert finish.generated_tokens > 0

    def _check_admitted(self, plan: Any) -> None:
        scheduler = self.scheduler
        pool, limits = scheduler.pool, scheduler.limits
        joined = {admission.id for admission in plan.admitted}
        staying = [request for request in scheduler.running.values() if request.id not in joined]
        held = {block for request in staying for block in request.block_table}
        running = len(staying)
        for admission in plan.admitted:
            request = scheduler.get(admission.id)
            whole = -(-(request.total_tokens + 1) // pool.block_size)
            assert admission.blocks == len(request.block_table) == whole, (
                f"{request.id} got {admission.blocks} blocks"
            )
            needs = len(set(request.block_table) - held)
            mark = limits.admit_limit if request.lane == "interactive" else limits.batch_limit
            assert not running or len(held) + needs <= mark, f"{request.id} was admitted past the mark"
            assert running < limits.max_running, f"{request.id} was admitted beyond max_running"
            assert admission.resumed == (request.preemptions > 0 or bool(request.output)), (
                f"{request.id} resumed?"
            )
            assert admission.waited_s >= 0
            held.update(request.block_table)
            running += 1
        assert len(held) == pool.used or plan.preempted

    def _check_line(self, plan: Any, before: Before) -> None:
        """First come, first admitted, but for a bounded number of passes; batch never before interactive."""
        admitted = {admission.id for admission in plan.admitted}
        if not admitted:
            return
        passers: set[Any] = set()
        for tier in ("interactive", "batch"):
            line = [
                request
                for request in before.queue
                if request.lane == tier and (request.id in admitted or not self._is_barred(request))
            ]
            # Who aged in this step stands first.
            line.sort(key=lambda request: request.lane == "batch" or request not in before.batch_queue)
            line = self.fair.order(line)
            head = next((request for request in line if request.id not in admitted), None)
            if head is None:
                continue
            behind = {request for request in line[line.index(head) :] if request.id in admitted}
            passed = len(behind)
            passers |= behind
            self.passed += passed
            self.passes[head.id] = self.passes.get(head.id, 0) + passed
            assert self.passes[head.id] <= self.most_passes, (
                f"{head.id} was passed {self.passes[head.id]} times"
            )
            if tier == "interactive":
                batch = [
                    request.id
                    for request in before.queue
                    if request.lane == "batch" and request.id in admitted
                ]
                assert not batch, f"{batch} admitted while {head.id} waits"
        starts = {chunk.request.id: chunk.start for chunk in plan.chunks}
        for admission in plan.admitted:
            self.passes.pop(admission.id, None)
            request = self.scheduler.get(admission.id)
            self.fair.admitted(request, admission.resumed, starts[request.id], request in passers)

    def _is_barred(self, request: Any) -> bool:
        """Whether it waits for others of its tenant, or of its kind: that holds up nobody else."""
        waits = request in self.scheduler.waiting
        return waits and self.scheduler.admission.reason(request)[0] in BARRED

    def _check_left_waiting(self, plan: Any) -> None:
        """Nobody waits who could run: the first in line is really blocked, and everybody's reason is true.
        All of a long queue are asked only every fourth step."""
        scheduler = self.scheduler
        if not self._waiting:
            assert scheduler.admission.reason_counts() == {}, "reasons are counted and nobody waits"
            return
        counts: dict[str, int] = {}
        left = scheduler.limits.token_budget - sum(chunk.count for chunk in plan.chunks)
        ahead: set[str] = set()
        over_share: set[str] = set()
        whole = plan.step % 4 == 0
        shown = list(islice(scheduler.admission.in_order(), None if whole else 3))
        barred: set[Any] = set()
        for request in shown:
            reason, behind = scheduler.admission.reason(request)
            counts[reason] = counts.get(reason, 0) + 1
            if reason in BARRED:
                barred.add(request)
            self._check_reason(request, reason, behind, left, plan, ahead, over_share)
            ahead.add(request.id)
        if whole:
            self._check_order(shown, barred)
            assert counts == scheduler.admission.reason_counts(), (
                "the counts of reasons are not those of the rows"
            )

    def _check_order(self, shown: list[Any], barred: set[Any]) -> None:
        """All stand in their turns. Operators see all who wait, and in turn those at whom the next step will
        look."""
        queue = self.scheduler.waiting
        assert len(shown) == len(queue)
        members: list[Any] = []
        for tier in ("interactive", "batch"):
            line = list(queue.order(tier))
            assert self.fair.order(line) == line, "the queue stands in another order than it should"
            members += line
            used = [each for each in shown if each.lane == tier and each not in barred]
            # The same line needs no second look.
            assert used == line or self.fair.order(used) == used, (
                "the rows stand in another order than will be used"
            )
        assert set(shown) == set(members), "the rows are not those who wait"

    def _check_reason(
        self,
        request: Any,
        reason: str,
        behind: str | None,
        left: int,
        plan: Any,
        ahead: set[str],
        over_share: set[str],
    ) -> None:
        scheduler = self.scheduler
        pool, limits = scheduler.pool, scheduler.limits
        hit = self.cache.longest_hit(request)
        needs = -(-(request.total_tokens + 1) // pool.block_size) - sum(
            pool.ref_counts[block] > 0 for block in hit
        )
        mark = (
            limits.admit_limit
            if request.lane == "interactive"
            else min(limits.batch_limit, limits.admit_limit)
        )
        if self.bounds.over_share(request, hit):
            over_share.add(request.tenant)
        long = self.bounds.long_reason_now(request)
        truth = {
            "tenant": request.tenant in over_share or long == "tenant",
            "long_prefill": long is not None,
            "kv": needs > pool.available or bool(plan.preempted),
            "headroom": needs <= pool.available and bool(scheduler.running) and pool.used + needs > mark,
            "slots": len(scheduler.running) >= limits.max_running,
            "token_budget": left == 0,
            # Whoever was first then; what was found cached may have moved others before it since.
            "behind": behind is not None and scheduler.get(behind) in scheduler.waiting,
            "tier": request.lane == "batch"
            and (scheduler.waiting.count("interactive") > 0 or bool(plan.preempted)),
        }
        # A request that was looked at early may have been short of free blocks only later, or the other way
        # round.
        if reason == "headroom" and needs > pool.available:
            truth["headroom"] = True
        assert truth[reason], f"{request.id} waits for {reason}, which is not so"
        if reason == "behind" and not truth["kv"] and (not scheduler.running or pool.used + needs <= mark):
            spent = self.passes.get(behind or "", 0) >= limits.max_passes
            looked_at = len(ahead) + len(plan.admitted) <= LOOK_AHEAD
            assert spent or not looked_at, f"{request.id} fits and nothing but its place holds it back"
        assert (behind is not None) == (reason == "behind")


def check_map(core: Any, scheduler: Any) -> None:
    """The block map says of every block what the tables say and covers the pool once; the rows are all
    requests."""
    owners: dict[int, tuple[str, ...]] = {}
    for request in scheduler.running.values():
        for block in request.block_table:
            owners[block] = (*owners.get(block, ()), request.id)
    position = 0
    for run in core.block_runs(core.block_map(scheduler)):
        assert run.first == position
        assert run.count > 0
        position += run.count
        for block in range(run.first, position):
            assert run.owners == owners.get(block, ()), f"block {block} has other owners"
            idle = "cached" if block in scheduler.pool.cached_blocks else "free"
            assert run.state == ("used" if block in owners else idle)
    assert position == scheduler.pool.total
    shown = [row.id for row in core.rows(scheduler)]
    assert shown == [*scheduler.running, *(request.id for request in scheduler.admission.in_order())]
