"""From a packed batch to logits: how a step's numbers reach the device, and which attention they meet."""

from typing import TYPE_CHECKING, Protocol

import torch

from infer_engine.model.attention.packed import KernelAttention, PackedStep, PagedKernel, StepTensors
from infer_engine.model.attention.paged import PagedAttention, Scratch
from infer_engine.model.attention.pool import KvPool
from infer_engine.model.llama import Llama
from infer_engine.runner.decode_graphs import DecodeGraphs
from infer_engine.runner.staging import Staging

if TYPE_CHECKING:
    from infer_engine.model.kernels.model import KernelLlama


class Forward(Protocol):
    """Called in inference mode."""

    def __call__(self, step: PackedStep) -> torch.Tensor:
        """Write the KV of the step's tokens and attend; fp32 logits [len(step.logit_rows), vocab], valid
        until the next call. Tokens are in the vocabulary."""
        ...


class GatherForward:
    """Attention by gathering: the CPU's way, and the fallback anywhere."""

    def __init__(self, model: Llama, pool: KvPool) -> None:
        self._model = model
        self._pool = pool
        self._scratch = Scratch(model.dtype, model.device)

    def __call__(self, step: PackedStep) -> torch.Tensor:
        """See ``Forward``."""

        def on_device(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=self._model.device)

        positions = [
            position for span in step.spans for position in range(span.start, span.start + span.count)
        ]
        attention = PagedAttention(self._pool, step.spans, self._scratch, self._model.dtype)
        return self._model(
            on_device(step.tokens), on_device(positions), attention, on_device(step.logit_rows)
        )


class CompiledForward:
    """The whole step in compiled code on the CPU, attention in place."""

    def __init__(self, model: "KernelLlama", pool: KvPool) -> None:
        self._model = model
        self._pool = pool

    def __call__(self, step: PackedStep) -> torch.Tensor:
        """See ``Forward``."""
        positions = [n for span in step.spans for n in range(span.start, span.start + span.count)]
        tokens = torch.tensor(step.tokens, dtype=torch.int64)
        rows = list(step.logit_rows)
        return self._model(tokens, torch.tensor(positions), step.spans, self._pool, rows)


class KernelForward:
    """Attention by a kernel over pages. All of a step's numbers go to the device in one copy, and nothing
    waits for the device. ``graphs`` replays the steps that it can."""

    def __init__(
        self, model: Llama, pool: KvPool, kernel: PagedKernel, graphs: DecodeGraphs | None = None
    ) -> None:
        self._model = model
        self._pool = pool
        self._kernel = kernel
        self._staging = Staging(model.device)
        self.graphs = graphs

    def __call__(self, step: PackedStep) -> torch.Tensor:
        """See ``Forward``."""
        if self.graphs is not None:
            logits = self.graphs.replay(step)
            if logits is not None:
                return logits
        block_size = self._pool.block_size
        numbers = self._staging.bring(step.numbers(block_size))
        return self.compute(step.on_device(numbers, block_size))

    def compute(self, step: StepTensors) -> torch.Tensor:
        """The forward pass itself: it only reads tensors, so it can be captured."""
        attention = KernelAttention(self._pool, self._kernel, step.spans)
        return self._model(step.tokens, step.positions, attention, step.logit_rows)
