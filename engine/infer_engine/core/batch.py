"""The running sequences: who joins them, who can be made to leave, and whose blocks may be written to."""

from infer_engine.core.blocks import BlockPool
from infer_engine.core.counters import Counters
from infer_engine.core.plan import Admission, Plan, Preemption
from infer_engine.core.queues import WaitingQueue
from infer_engine.core.request import Request
from infer_engine.core.swap import HostPool


class Batch:
    def __init__(self, pool: BlockPool, host: HostPool, waiting: WaitingQueue, counters: Counters) -> None:
        self.pool = pool
        #: In batch order, by id.
        self.running: dict[str, Request] = {}
        self._host = host
        self._waiting = waiting
        self._counters = counters

    def join(self, request: Request, now_s: float) -> Admission:
        """It has its blocks."""
        request.state = "running"
        if request.admitted_s is None:
            request.admitted_s = now_s
        self.running[request.id] = request
        resumed = request.preemptions > 0 or bool(request.output)
        self._counters.admissions += 1
        self._counters.resumptions += resumed
        return Admission(
            id=request.id,
            blocks=len(request.block_table),
            waited_s=max(0.0, now_s - request.queued_s),
            resumed=resumed,
            cached_tokens=request.cached_tokens,
        )

    def leave(self, request: Request) -> int:
        """For good; returns how many blocks that freed. The block table stays as it was: a plan under way may
        name it, and its blocks are handed out again by the next step at the earliest."""
        del self.running[request.id]
        return self.pool.release(request.block_table)

    # --- writing -------------------------------------------------------------------------------------------

    def must_copy(self, request: Request) -> bool:
        """Whether the block that the next token goes to belongs to others, too."""
        number = request.computed_tokens // self.pool.block_size
        return number < len(request.block_table) and not self.pool.is_writable(request.block_table[number])

    def replace_next(self, request: Request, block: int, plan: Plan) -> None:
        """Let the next token go to ``block``, a copy of where it would have gone."""
        number = request.computed_tokens // self.pool.block_size
        shared = request.block_table[number]
        # The table may be named by others that share it.
        request.block_table = [*request.block_table[:number], block, *request.block_table[number + 1 :]]
        self.pool.release([shared])
        plan.copies.append((shared, block))

    # --- preemption ----------------------------------------------------------------------------------------

    def preemptible(self) -> list[Request]:
        """Who may be preempted: a sequence that fills the pool by now would never be admitted again, and one
        that is pinned could not go on once it has begun."""
        return [
            request
            for request in self.running.values()
            if self.pool.blocks_for(request.total_tokens + 1) <= self.pool.total
            and not (request.pinned and request.output)
        ]

    def preempt(self, victim: Request, plan: Plan, now_s: float, *, asked: bool = False) -> None:
        """Take the blocks; the tokens stay, and their KV is moved to the host, or computed again after the
        next admission. ``asked``: by an operator."""
        lost = set(victim.block_table)
        copies = [copy for copy in plan.copies if copy[1] not in lost]
        computed = victim.block_table[: self.pool.blocks_for(victim.computed_tokens)]
        # What this step was to copy into its blocks is not there yet.
        swap = len(copies) == len(plan.copies)
        swap = swap and self._host.prefers_swap(len(computed), victim.computed_tokens)
        if swap:
            plan.swap_out += self._host.move_out(victim, computed)
        plan.copies = copies
        preemption = Preemption(
            id=victim.id,
            mode="swap" if swap else "recompute",
            freed_blocks=self.leave(victim),
            redo_tokens=0 if swap else victim.computed_tokens,
            asked=asked,
        )
        victim.block_table = []
        victim.indexed_blocks = 0
        victim.computed_tokens = victim.cached_tokens = 0
        victim.state = "waiting"
        victim.preemptions += 1
        victim.queued_s = now_s
        victim.queued_step = plan.step
        self._waiting.push_first(victim)
        self._counters.preemptions += 1
        self._counters.swaps += swap
        self._counters.redo_tokens += preemption.redo_tokens
        plan.preempted.append(preemption)


def least_important(requests: list[Request]) -> Request:
    """Batch before interactive, then the lowest priority, then the latest to arrive, then the last in the
    batch."""
    return max(
        reversed(requests),
        key=lambda request: (request.lane == "batch", -request.priority, request.arrival_s),
    )
