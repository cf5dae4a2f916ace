"""Which replica gets a request. Pure: loads in, a replica's id out.

Only replicas that are ready and admit are ever asked about: draining and unready ones are filtered, never
scored, and so are stalled ones while others step. Loads count what was dispatched a moment ago, before the
replica has said a word about it, so a burst does not land on one replica.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: KV use above which a queue is taken for a sign of memory pressure.
KV_PRESSURE_FROM = 0.5
#: What a waiting request counts for on a replica whose pool is full, in running sequences.
KV_PRESSURE_WEIGHT = 6.0


@dataclass(frozen=True, slots=True)
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
    #: Blocks in use or promised to requests that were dispatched.
    kv_taken_blocks: int
    kv_total_blocks: int
    #: Most requests in its queue.
    most_waiting: int

    @property
    def is_full(self) -> bool:
        return self.waiting >= self.most_waiting


def cost(load: Load) -> float:
    """Work ahead of a new request, in running sequences per slot; lower is better.

    A step of queued prefill delays the new request about as much as one more sequence slows its decode;
    waiting requests weigh more the fuller the pool is, since they wait for memory and not for a turn."""
    sequences = load.running + load.waiting
    prefill_steps = load.queued_prefill_tokens / load.token_budget
    kv_share = min(1.0, load.kv_taken_blocks / load.kv_total_blocks) if load.kv_total_blocks else 1.0
    pressure = KV_PRESSURE_WEIGHT * load.waiting * max(0.0, kv_share - KV_PRESSURE_FROM)
    return (sequences + prefill_steps + pressure) / load.slots + kv_share


def choose(loads: Sequence[Load], turn: int) -> str | None:
    """The cheapest replica with room in its queue; ties go round with ``turn``. None when all are full."""
    open_loads = [load for load in loads if not load.is_full]
    if not open_loads:
        return None
    start = turn % len(open_loads)
    rotated = [*open_loads[start:], *open_loads[:start]]
    return min(rotated, key=cost).replica
