"""How much memory a step needs besides weights and KV pool: measured by computing the largest one."""

from collections.abc import Callable
from typing import Protocol

import torch

from infer_engine.model.attention.packed import PackedStep
from infer_engine.model.attention.paged import Span


class Meter(Protocol):
    """Counts what is allocated on a device, in bytes."""

    def allocated_bytes(self) -> int: ...

    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int: ...


class CudaMeter:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocated_bytes(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)


def workspace_bytes(compute: Callable[[PackedStep], torch.Tensor], step: PackedStep, meter: Meter) -> int:
    """How far above what is allocated now the memory goes while ``step`` is computed."""
    before = meter.allocated_bytes()
    meter.reset_peak()
    compute(step)
    return max(0, meter.peak_bytes() - before)


def largest_step(max_running: int, token_budget: int, block_size: int) -> PackedStep:
    """A step of ``token_budget`` tokens in which ``max_running`` sequences sample: all of them but one decode
    one token, and one prefills with the rest. Every block is block 0: what is computed does not matter."""
    singles = [Span(0, 1, [0]) for _ in range(min(max_running, token_budget) - 1)]
    rest = token_budget - len(singles)
    chunk = Span(0, rest, [0] * -(-rest // block_size))
    return PackedStep(
        tokens=[0] * token_budget,
        logit_rows=[*range(len(singles)), token_budget - 1],
        spans=[*singles, chunk],
    )
