"""Who enters the batch now, and why everybody else waits.

A KV-memory decision: prompt, output so far and one token more must fit into free or cached blocks, below the
tier's mark; blocks of a cached prefix that others hold already cost nothing. A step looks at a bounded number
of requests, so it costs the same whether a hundred wait or a hundred thousand; the reasons of those it did
not look at follow from how it ended and are told only when somebody asks.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from infer_engine.core.barriers import Barriers
from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits
from infer_engine.core.prefix import Hit
from infer_engine.core.queues import TIERS, WaitingQueue
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool
from infer_engine.protocol import Tier, WaitingReason

#: How many requests behind a blocked head are tried in one step.
LOOK_AHEAD = 32


@dataclass(frozen=True, slots=True)
class Price:
    """What the admission of a request costs now: ``needs`` blocks become used beside the ``hit``'s held
    ones, ``fresh`` of them newly allocated."""

    hit: Hit
    fresh: int
    needs: int


@dataclass(frozen=True, slots=True)
class Blocked:
    reason: WaitingReason
    needs: int


class AdmissionControl:
    def __init__(
        self, pool: BlockPool, waiting: WaitingQueue, host: HostPool, running: dict[str, Request]
    ) -> None:
        """``running`` is the batch, read only."""
        self._pool = pool
        self._host = host
        self._waiting = waiting
        self._running = running
        # How the last round ended: what closed it to everybody, who was looked at and blocked, each tier's
        # blocked head, who was barred.
        self._gate: WaitingReason | None = None
        self._blocked: dict[Request, Blocked] = {}
        self._heads: dict[Tier, Request] = {}
        self._tiers = TIERS
        self._barriers: Barriers | None = None

    # --- deciding ------------------------------------------------------------------------------------------

    def admit(self, limits: Limits, tokens: int, tiers: tuple[Tier, ...] = TIERS) -> "Round":
        """Take from the queue who may join the batch with ``tokens`` left of the step's budget, and give each
        its blocks."""
        self._forget()
        round_ = Round(limits, len(self._running), tokens)
        self._tiers = tiers
        for tier in tiers:
            if self._waiting.count(tier):
                self._admit_tier(tier, round_)
            # A batch request never takes blocks for which an interactive one waits.
            if self._gate is not None or tier in self._heads:
                break
        # The order must not change while it is gone through.
        for request, _ in round_.admitted:
            self._waiting.admitted(request, in_turn=request not in round_.passed)
        return round_

    def hold(self) -> None:
        """The step preempted for those who run: it admits nobody, for want of KV."""
        self._forget()
        self._gate = "kv"

    def hold_back(self) -> None:
        """Whoever computes takes nobody just now."""
        self._forget()
        self._gate = "slots"

    def _forget(self) -> None:
        self._gate = None
        self._blocked = {}
        self._heads = {}
        self._barriers = None

    def _barriers_now(self, limits: Limits) -> Barriers:
        if self._barriers is None:
            self._barriers = Barriers(limits, self._pool, self._running.values())
        return self._barriers

    def _admit_tier(self, tier: Tier, round_: "Round") -> None:
        """In order, until somebody finds no room. Smaller requests may pass that head, but only so often:
        then the batch empties until it fits."""
        if (gate := round_.gate()) is not None:
            self._gate = gate
            return
        barriers = self._barriers_now(round_.limits)
        head: Request | None = None
        looked = 0
        for request in self._waiting.order(tier, barriers):
            if head is not None and (head.passed >= round_.limits.max_passes or looked == LOOK_AHEAD):
                return
            if (gate := round_.gate()) is not None:
                self._gate = gate
                return
            reason = self._take(request, round_, barriers)
            looked += head is not None and not barriers.passes_over(request)
            if reason is None and head is not None:
                head.passed += 1
                round_.passed.add(request)
            elif reason is not None and head is None and not barriers.passes_over(request):
                head = self._heads[tier] = request

    def _price(self, request: Request) -> Price:
        hit = self._pool.index.find(request)
        fresh = self._whole(request) - len(hit.blocks)
        return Price(hit, fresh, fresh + self._pool.idle(hit.blocks))

    def _obstacle(self, request: Request, needs: int, round_: "Round") -> WaitingReason | None:
        if needs > self._pool.available:
            return "kv"
        # Without the exemption of an empty batch, a request larger than the mark would wait for ever.
        if round_.running and self._pool.used + needs > round_.limits.mark(request.lane):
            return "headroom"
        return None

    def _take(self, request: Request, round_: "Round", barriers: Barriers) -> WaitingReason | None:
        """Move it into the batch, or note what keeps it out. Nothing comes between looking its prefix up and
        holding it."""
        price = self._price(request)
        hit = price.hit
        to_compute = self._to_compute(request, hit)
        reason = barriers.check(request, hit, price.fresh, to_compute)
        if reason is None:
            reason = self._obstacle(request, price.needs, round_)
        if reason is not None:
            self._blocked[request] = Blocked(reason, price.needs)
            return reason
        table = self._pool.allocate_behind(hit.blocks, price.fresh)
        if table is None:
            raise RuntimeError(f"admission of {request.id} was decided on blocks that are not there")
        request.block_table = table
        self._start_behind(hit, request, round_)
        request.passed = 0
        request.long_prefill = to_compute > round_.limits.long_prefill_tokens
        barriers.joined(request)
        count = min(request.total_tokens - request.computed_tokens, round_.tokens)
        round_.tokens -= count
        round_.running += 1
        round_.admitted.append((request, count))
        return None

    def _to_compute(self, request: Request, hit: Hit) -> int:
        """Tokens without KV, behind the hit or what was swapped out."""
        known = len(hit.blocks) * self._pool.block_size + hit.part_tokens
        return request.total_tokens - max(known, request.host_tokens)

    def next_for(self, tier: Tier, limits: Limits) -> Request | None:
        """The first who waits for nothing but room."""
        if not self._waiting.count(tier):
            return None
        barriers = Barriers(limits, self._pool, self._running.values())
        for request in self._waiting.order(tier, barriers):
            price = self._price(request)
            to_compute = self._to_compute(request, price.hit)
            if barriers.check(request, price.hit, price.fresh, to_compute) is None:
                return request
        return None

    def may_join(
        self, request: Request, limits: Limits, table: list[int], fresh: int, to_compute: int
    ) -> bool:
        """Whether it may join the batch with the blocks of ``table``, which others hold, and ``fresh``
        more."""
        barriers = Barriers(limits, self._pool, self._running.values())
        return (
            len(self._running) < limits.max_running
            and barriers.check(request, Hit(table), fresh, to_compute) is None
            and self._pool.used + fresh <= limits.mark(request.lane)
            and fresh <= self._pool.available
        )

    def fits(self, request: Request, limits: Limits, running: int) -> bool:
        """Whether it would be admitted to a batch of ``running`` sequences, its tokens aside."""
        round_ = Round(limits, running, 1)
        return round_.gate() is None and self._obstacle(request, self._price(request).needs, round_) is None

    def would_fit(self, request: Request, limits: Limits, running: int, gone: list[Request]) -> bool:
        """``fits`` once those ``gone`` have left the batch."""
        entries = Counter(block for other in gone for block in other.block_table)
        freed = {block for block, count in entries.items() if self._pool.ref_counts[block] == count}
        price = self._price(request)
        used = self._pool.used - len(freed)
        needs = price.needs + len(freed.intersection(price.hit.blocks))
        left = running - len(gone)
        if left >= limits.max_running or used + needs > self._pool.total:
            return False
        return not left or used + needs <= limits.mark(request.lane)

    def _start_behind(self, hit: Hit, request: Request, round_: "Round") -> None:
        """Compute from where the hit ends, or what was swapped out, if that reaches further."""
        blocks = len(hit.blocks)
        request.indexed_blocks = blocks
        hit_tokens = blocks * self._pool.block_size + hit.part_tokens
        if hit_tokens < request.host_tokens:
            request.cached_tokens = blocks * self._pool.block_size
            request.computed_tokens = request.host_tokens
            round_.swap_in += self._host.move_in(request, request.block_table, blocks)
            return
        self._host.forget(request)
        request.computed_tokens = request.cached_tokens = hit_tokens
        if hit.part_tokens:
            # Nobody has to hold what is copied from: it is read before anything is written.
            round_.copies.append((hit.part_of, request.block_table[blocks]))

    # --- telling -------------------------------------------------------------------------------------------

    def needs(self, request: Request) -> int:
        """Blocks that admission of this waiting request takes: all tokens known so far and the next one, less
        what the last step found cached and held by others."""
        blocked = self._blocked.get(request)
        if blocked is not None:
            return blocked.needs
        return self._whole(request)

    def _whole(self, request: Request) -> int:
        return self._pool.blocks_for(request.total_tokens + 1)

    def admissible(self, limits: Limits, tier: Tier, running: int) -> int:
        """Free and cached blocks that admission could give now, under the tier's mark."""
        available = self._pool.available
        return max(0, min(available, limits.mark(tier) - self._pool.used)) if running else available

    def reason(self, request: Request) -> tuple[WaitingReason, str | None]:
        """Why this waiting request was not admitted by the last step, and behind whom it waits."""
        blocked = self._blocked.get(request)
        if blocked is not None:
            return blocked.reason, None
        long = self._waiting.is_queued_as_long(request)
        barred = self._barriers.reason(request.tenant, long=long) if self._barriers is not None else None
        return (barred, None) if barred is not None else self._reason_of_others(request.lane)

    def reason_counts(self) -> dict[str, int]:
        """How many wait for each reason; costs the same however many wait."""
        blocked = [request for request in self._blocked if request in self._waiting]
        counts: Counter[str] = Counter(self._blocked[request].reason for request in blocked)
        others: dict[Tier, int] = {
            tier: self._waiting.count(tier) - sum(each.lane == tier for each in blocked) for tier in TIERS
        }
        for (tier, reason), number in self._barred_counts(blocked).items():
            counts[reason] += number
            others[tier] -= number
        for tier, number in others.items():
            if number:
                counts[self._reason_of_others(tier)[0]] += number
        return +counts

    def _barred_counts(self, blocked: list[Request]) -> Counter[tuple[Tier, WaitingReason]]:
        """How many are barred who were not looked at."""
        counts: Counter[tuple[Tier, WaitingReason]] = Counter()
        barriers, waiting = self._barriers, self._waiting
        if barriers is None:
            return counts
        known = Counter((each.lane, each.tenant, waiting.is_queued_as_long(each)) for each in blocked)
        for (tier, tenant, long), number in waiting.sizes.items():
            reason = barriers.reason(tenant, long=long)
            if reason is not None:
                counts[tier, reason] += number - known[tier, tenant, long]
        return counts

    def in_order(self) -> Iterator[Request]:
        """All who wait, in the order in which the next step looks at them if nothing changes; the barred
        stand in it, and it goes on behind them as without them."""
        return chain.from_iterable(self._waiting.order(tier, _Seen(self)) for tier in TIERS)

    def _reason_of_others(self, tier: Tier) -> tuple[WaitingReason, str | None]:
        """The reason of everyone in ``tier`` at whom the last round did not look."""
        if self._gate is not None:
            return self._gate, None
        if tier not in self._tiers or (tier == "batch" and self._waits_head("interactive") is not None):
            return "tier", None
        head = self._waits_head(tier)
        if head is not None:
            return "behind", head.id
        # It came after the round, or whoever it waited behind has gone: the tokens of this step are spoken
        # for.
        return "token_budget", None

    def _waits_head(self, tier: Tier) -> Request | None:
        head = self._heads.get(tier)
        return head if head is not None and head in self._waiting else None


class _Seen:
    """What operators are shown: everybody, in the order in which those go on who are not kept out."""

    def __init__(self, admission: AdmissionControl) -> None:
        self._admission = admission

    def bars(self, tenant: str, *, long: bool) -> bool:
        return False

    def passes_over(self, request: Request) -> bool:
        return self._admission.reason(request)[0] in ("tenant", "long_prefill")


class Round:
    """One round of admission."""

    def __init__(self, limits: Limits, running: int, tokens: int) -> None:
        self.limits = limits
        self.running = running
        #: Those who were admitted before a blocked head.
        self.passed: set[Request] = set()
        #: Left of the step's token budget.
        self.tokens = tokens
        #: With the number of tokens that each computes in this step.
        self.admitted: list[tuple[Request, int]] = []
        #: Blocks (from, to) that begin as a newcomer's do.
        self.copies: list[tuple[int, int]] = []
        #: Blocks (on the host, in the pool) of newcomers that had been swapped out.
        self.swap_in: list[tuple[int, int]] = []

    def gate(self) -> WaitingReason | None:
        """What keeps out everybody, whatever their size."""
        if self.running >= self.limits.max_running:
            return "slots"
        return "token_budget" if self.tokens < 1 else None
