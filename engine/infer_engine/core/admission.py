"""Who enters the batch now, and why everybody else waits.

A KV-memory decision: prompt, output so far and one token more must fit into free or cached blocks, below the
tier's mark; blocks of a cached prefix that others hold already cost nothing. A step looks at a bounded number
of requests, so it costs the same whether a hundred wait or a hundred thousand; the reasons of those it did
not look at follow from how it ended and are told only when somebody asks.
"""

from collections import Counter
from dataclasses import dataclass

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
    def __init__(self, pool: BlockPool, waiting: WaitingQueue, host: HostPool) -> None:
        self._pool = pool
        self._host = host
        self._waiting = waiting
        # How the last round ended: what closed it to everybody, who was looked at and blocked, each tier's
        # blocked head.
        self._gate: WaitingReason | None = None
        self._blocked: dict[Request, Blocked] = {}
        self._heads: dict[Tier, Request] = {}
        self._tiers = TIERS

    # --- deciding ------------------------------------------------------------------------------------------

    def admit(self, limits: Limits, running: int, tokens: int, tiers: tuple[Tier, ...] = TIERS) -> "Round":
        """Take from the queue who may join a batch of ``running`` sequences with ``tokens`` left of the
        step's budget, and give each its blocks."""
        self._gate = None
        self._blocked = {}
        self._heads = {}
        round_ = Round(limits, running, tokens)
        self._tiers = tiers
        for tier in tiers:
            self._admit_tier(tier, round_)
            # A batch request never takes blocks for which an interactive one waits.
            if self._gate is not None or tier in self._heads:
                break
        return round_

    def hold(self) -> None:
        """The step preempted for those who run: it admits nobody, for want of KV."""
        self._gate = "kv"
        self._blocked = {}
        self._heads = {}

    def _admit_tier(self, tier: Tier, round_: "Round") -> None:
        while (head := self._waiting.first(tier)) is not None:
            if (gate := round_.gate()) is not None:
                self._gate = gate
                return
            if not self._take(head, round_):
                self._heads[tier] = head
                self._pass_by(head, round_)
                return

    def _pass_by(self, head: Request, round_: "Round") -> None:
        """Smaller requests may pass a blocked head, but only so often: then the batch empties until it
        fits."""
        for request in self._waiting.behind_first(head.lane, LOOK_AHEAD):
            if head.passed >= round_.limits.max_passes:
                return
            if (gate := round_.gate()) is not None:
                self._gate = gate
                return
            head.passed += self._take(request, round_)

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

    def _take(self, request: Request, round_: "Round") -> bool:
        """Move it into the batch, or note what keeps it out. Nothing comes between looking its prefix up and
        holding it."""
        price = self._price(request)
        if (reason := self._obstacle(request, price.needs, round_)) is not None:
            self._blocked[request] = Blocked(reason, price.needs)
            return False
        hit = price.hit
        table = self._pool.allocate_behind(hit.blocks, price.fresh)
        if table is None:
            raise RuntimeError(f"admission of {request.id} was decided on blocks that are not there")
        self._waiting.remove(request)
        request.block_table = table
        self._start_behind(hit, request, round_)
        request.passed = 0
        count = min(request.total_tokens - request.computed_tokens, round_.tokens)
        round_.tokens -= count
        round_.running += 1
        round_.admitted.append((request, count))
        return True

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
        return (blocked.reason, None) if blocked is not None else self._reason_of_others(request.lane)

    def reason_counts(self) -> dict[str, int]:
        """How many wait for each reason; costs the same however many wait."""
        blocked = [request for request in self._blocked if request in self._waiting]
        counts: Counter[str] = Counter(self._blocked[request].reason for request in blocked)
        for tier in TIERS:
            others = self._waiting.count(tier) - sum(request.lane == tier for request in blocked)
            if others:
                counts[self._reason_of_others(tier)[0]] += others
        return dict(counts)

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


class Round:
    """One round of admission."""

    def __init__(self, limits: Limits, running: int, tokens: int) -> None:
        self.limits = limits
        self.running = running
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
