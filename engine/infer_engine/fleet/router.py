"""Which replica gets a request. Pure: loads in, a choice and its reason out.

Only replicas that are ready and admit are ever asked about: draining and unready ones are filtered, never
scored, and so are stalled ones while others step. Loads count what was dispatched a moment ago, before the
replica has said a word about it, so a burst does not land on one replica.

The cost is the time to first token that the request would see, in engine steps; the lowest wins:

    (tokens queued for prefill + tokens of this request that are not cached there) / tokens per step
    + SEQUENCE_STEPS x sequences / slots
    + SLOT_STEPS x sequences beyond the slots / slots
    + KV_STEPS x max(0, KV share - KV_PRESSURE_FROM) x (1 + waiting)

A step of queued prefill delays the first token by a step. A decoding sequence takes its token of every step
and its share of the memory's bandwidth. Where slots or memory have run out, a place comes free only when
somebody ends, which takes many steps.

A cached beginning lowers the first term by what it saves, so a replica that holds the prompt is worth a
longer way to it, but only as long as the fleet is in balance: one that is ahead of the least loaded by more
than AFFINITY_ABS sequences and by AFFINITY_REL times counts as if it held nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

#: What a batch whose slots are all taken adds to the wait for a first token, in steps.
SEQUENCE_STEPS = 2.0
#: What as many sequences without a slot as there are slots add.
SLOT_STEPS = 40.0
#: KV share above which memory is short, and what each request that waits for it is worth when all is taken.
KV_PRESSURE_FROM = 0.8
KV_STEPS = 20.0
#: Beyond both of these a replica is too far ahead of the least loaded one for what it holds to count.
AFFINITY_ABS = 16
AFFINITY_REL = 1.5


@dataclass(slots=True)
class Load:
    """One candidate, dispatched but unreported requests included."""

    replica: str
    #: Requests in its batch or queue.
    running: int
    waiting: int
    #: Most sequences in its batch.
    slots: int
    #: Prompt tokens whose KV it has yet to compute, and how many it computes per step at most.
    queued_prefill_tokens: int
    token_budget: int
    #: Blocks in use, and blocks promised to requests that wait.
    kv_used_blocks: int
    kv_promised_blocks: int
    kv_total_blocks: int
    #: Most requests in its queue.
    most_waiting: int
    #: Of those that wait, the batch tier: interactive requests go before them.
    waiting_batch: int = 0
    #: It has not said anything for too long: taken for more loaded than any that has.
    stale: bool = False
    #: Steps that it costs before the request's own tokens; worked out when it is needed. Whoever changes a
    #: field sets it to None.
    base_steps: float | None = None

    @property
    def is_full(self) -> bool:
        return self.waiting >= self.most_waiting


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be placed."""

    #: Tokens whose KV it needs: prompt and what it has emitted.
    tokens: int
    #: Of those, how many from the beginning a replica probably has in its cache.
    held_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    #: Counts up by one from decision to decision: ties go round with it.
    turn: int = 0
    #: The hashes of its full blocks.
    chain: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    replica: str
    #: "prefix 512 tokens", "least loaded", "rotation" (others were as good), "only one".
    why: str
    #: How many replicas were to choose from.
    candidates: int

    def __str__(self) -> str:
        return self.why if self.candidates == 1 else f"{self.why}, of {self.candidates}"


#: Given those that may have it, who gets it; None when none has room.
Policy = Callable[[Sequence[Load], Ask], Choice | None]


def cost(load: Load, uncached_tokens: int) -> float:
    """Steps until the first token of a request with so many tokens to compute; lower is better."""
    base = load.base_steps
    if base is None:
        base = load.base_steps = _base_steps(load)
    return base + uncached_tokens / load.token_budget


def _base_steps(load: Load) -> float:
    sequences = load.running + load.waiting
    slots = load.slots
    steps = load.queued_prefill_tokens / load.token_budget + SEQUENCE_STEPS * sequences / slots
    if sequences >= slots:
        steps += SLOT_STEPS * (sequences + 1 - slots) / slots
    total = load.kv_total_blocks
    share = (load.kv_used_blocks + load.kv_promised_blocks) / total if total else 1.0
    if share > KV_PRESSURE_FROM:
        steps += KV_STEPS * (share - KV_PRESSURE_FROM) * (1 + load.waiting)
    return steps


def choose(loads: Sequence[Load], ask: Ask) -> Choice | None:
    """The cheapest replica with room in its queue; ties go round with ``ask.turn``. None when all are
    full."""
    open_loads = [load for load in loads if load.waiting < load.most_waiting]
    if not open_loads:
        return None
    # Nobody is asked whose word is old while there is one whose is not.
    fresh = [load for load in open_loads if not load.stale] or open_loads
    held, tokens = ask.held_tokens, ask.tokens
    bound = _affinity_bound(fresh) if held else 0.0
    best: list[Load] = []
    lowest = float("inf")
    for load in fresh:
        uncached = tokens
        if held and load.replica in held and load.running + load.waiting <= bound:
            uncached -= held[load.replica]
        steps = cost(load, uncached)
        if steps < lowest:
            best, lowest = [load], steps
        elif steps == lowest:
            best.append(load)
    chosen = best[ask.turn % len(best)]
    return Choice(chosen.replica, _why(chosen, best, ask, bound, len(loads)), len(loads))


def _affinity_bound(loads: Sequence[Load]) -> float:
    """Sequences up to which what a replica holds counts."""
    least = min(load.running + load.waiting for load in loads)
    return max(least + AFFINITY_ABS, least * AFFINITY_REL)


def _why(chosen: Load, best: Sequence[Load], ask: Ask, bound: float, candidates: int) -> str:
    if candidates == 1:
        return "only one"
    cached = ask.held_tokens.get(chosen.replica, 0)
    if cached and chosen.running + chosen.waiting <= bound:
        return f"prefix {cached} tokens"
    return "least loaded" if len(best) == 1 else "rotation"
