"""In which state a live request is: what an abort, a deadline or a drain may meet."""

from typing import Any

#: Every one of them must be met.
STATES = ("waiting", "continued", "preempted", "swapped", "prefill", "decode", "sharing")


def state_of(request: Any, pool: Any) -> str:
    """``continued`` waits with tokens from another replica, ``preempted`` waits to be recomputed, ``swapped``
    waits with its KV on the host, ``sharing`` runs on blocks of which others hold some."""
    if request.state == "running":
        if any(pool.ref_counts[block] > 1 for block in request.block_table):
            return "sharing"
        return "prefill" if request.is_prefilling else "decode"
    if request.host_blocks:
        return "swapped"
    if request.preemptions:
        return "preempted"
    return "continued" if request.output else "waiting"
