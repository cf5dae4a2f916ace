"""Preemption by swap: a bounded pool in host memory that keeps the KV of preempted sequences.

Who may be swapped and where its blocks go is decided here; the runner moves them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from infer_engine.core.request import Request
from infer_engine.protocol import PreemptChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCost:
    """What preemption costs by either way, in seconds."""

    #: To move one block out and in again.
    block_s: float = 0.0
    #: To compute one token again.
    token_s: float = 0.0


class HostPool:
    """``total`` blocks of host memory, each of the size of a block of the KV pool; 0 for none."""

    def __init__(self, total: int = 0, choice: PreemptChoice = "auto", cost: SwapCost | None = None) -> None:
        if total < 0:
            raise ValueError(f"a host pool of {total} blocks")
        self.total = total
        self.choice: PreemptChoice = choice
        #: Read only for others.
        self.free_list = list(range(total - 1, -1, -1))
        self._cost = cost or SwapCost()

    @property
    def used(self) -> int:
        """Blocks that keep somebody's KV."""
        return self.total - len(self.free_list)

    def prefers_swap(self, blocks: int, tokens: int) -> bool:
        """Whether to move ``blocks`` out rather than compute ``tokens`` tokens again: there must be room, and
        it must be cheaper where it is not forced."""
        if self.choice == "recompute" or not 0 < blocks <= len(self.free_list):
            return False
        return self.choice == "swap" or blocks * self._cost.block_s < tokens * self._cost.token_s

    def move_out(self, victim: Request, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """Room for the victim's first ``blocks``, which hold the KV of its computed tokens: moves (from the
        KV pool, to the host)."""
        host = [self.free_list.pop() for _ in blocks]
        victim.host_blocks = host
        victim.host_tokens = victim.computed_tokens
        return list(zip(blocks, host, strict=True))

    def move_in(self, request: Request, table: Sequence[int], first: int) -> list[tuple[int, int]]:
        """Moves (from the host, to the KV pool) of the request's blocks from ``first`` on, those before it
        being there already. The room on the host is free from the next step on."""
        moves = list(zip(request.host_blocks[first:], table[first:], strict=False))
        self.forget(request)
        return moves

    def forget(self, request: Request) -> None:
        """The request needs its blocks on the host no more."""
        self.free_list += reversed(request.host_blocks)
        request.host_blocks = []
        request.host_tokens = 0
