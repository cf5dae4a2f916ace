"""Host memory from which a step's numbers are copied to the device."""

from collections.abc import Sequence

import torch

_FEWEST = 4096


class Staging:
    """Pinned on CUDA, so that the copy is the device's business alone; reused from step to step, and only
    once the copy before has read it. On the CPU, its twin."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pinned = device.type == "cuda"
        self._memory = torch.empty(0, dtype=torch.int32)
        self._copied = torch.cuda.Event() if self._pinned else None

    def take(self, count: int) -> torch.Tensor:
        """Host memory for ``count`` int32 numbers, zeroed, valid until the next ``take``. Call ``sent``
        after the copies from it are under way."""
        if self._copied is not None:
            self._copied.synchronize()  # of the step before: it is long over
        if self._memory.numel() < count:
            size = max(_FEWEST, count * 5 // 4)
            self._memory = torch.empty(size, dtype=torch.int32, pin_memory=self._pinned)
        return self._memory[:count].zero_()

    def sent(self) -> None:
        """The copies from what was taken are under way on the current stream."""
        if self._copied is not None:
            self._copied.record()

    def bring(self, numbers: Sequence[int]) -> torch.Tensor:
        """``numbers`` as an int32 tensor on the device."""
        memory = self.take(len(numbers))
        memory.numpy()[:] = numbers
        there = torch.empty(len(numbers), dtype=torch.int32, device=self._device)
        there.copy_(memory, non_blocking=True)
        self.sent()
        return there
