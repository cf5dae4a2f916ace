"""A step's spans as a kernel reads them: a few integers for each token and sequence, on the device."""

from dataclasses import dataclass
from typing import Protocol

import torch

from infer_engine.model.attention.paged import Span
from infer_engine.model.attention.pool import KvPool


@dataclass(slots=True, frozen=True)
class PackedSpans:
    """S spans of T tokens in all, spans of one token first (``pack_order``). Integer tensors, int32 where
    nothing else is said.

    ``slots`` [T]: where each token's KV goes. ``query_starts`` [S + 1]: each span's first row in the packed
    batch, and T. ``lengths`` [S]: tokens of the context once the span is in it. ``context_starts`` [S + 1]:
    sums of the lengths before. ``tables`` [S, P]: blocks of each context; what lies behind the last that its
    length needs is never read.
    """

    slots: torch.Tensor
    query_starts: torch.Tensor
    lengths: torch.Tensor
    context_starts: torch.Tensor
    tables: torch.Tensor
    #: How many spans have one token: they are the first.
    singles: int
    #: Upper bounds, for a kernel's grid: tokens in a span, and in a context.
    longest_span: int
    longest_context: int


class PagedKernel(Protocol):
    """Causal attention over pages, straight from the pool."""

    #: Whether it may be captured into a CUDA graph: it reads no tensor on the host and allocates nothing
    #: that depends on what is in one.
    capturable: bool

    def __call__(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        spans: PackedSpans,
    ) -> None:
        """``queries`` [T, heads, head_dim] (rows may be strided) attend; the result goes into ``out``, of the
        same shape, contiguous. ``keys`` and ``values`` as ``KvPool.pages`` gives them; the step's own are
        already there."""
        ...


class KernelAttention:
    """Attention of one step, the same for all layers: writes the step's KV, then lets the kernel attend."""

    def __init__(self, pool: KvPool, kernel: PagedKernel, spans: PackedSpans) -> None:
        self._pool = pool
        self._kernel = kernel
        self._spans = spans
        self._slot_rows = pool.slot_rows(spans.slots)

    def __call__(self, layer: int, queries: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """See ``model.llama.Attention``."""
        self._pool.write(layer, self._slot_rows, kv)
        out = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
        self._kernel(out, queries, *self._pool.pages(layer), self._spans)
        return out.flatten(1)


@dataclass(slots=True, frozen=True)
class PackedStep:
    """What one forward pass reads, as plain numbers: ``fields`` in the order of ``StepTensors``, back to
    back. One copy brings them to the device."""

    tokens: list[int]
    logit_rows: list[int]
    spans: list[Span]

    def numbers(self, block_size: int) -> list[int]:
        """int32 numbers: tokens, positions, slots, logit rows, query starts, lengths, context starts,
        tables."""
        positions: list[int] = []
        slots: list[int] = []
        query_starts, lengths, context_starts = [0], list[int](), [0]
        tables: list[int] = []
        width = self.table_width(block_size)
        for span in self.spans:
            end = span.start + span.count
            positions += range(span.start, end)
            slots += [
                span.table[p // block_size] * block_size + p % block_size for p in range(span.start, end)
            ]
            query_starts.append(query_starts[-1] + span.count)
            lengths.append(end)
            context_starts.append(context_starts[-1] + end)
            used = span.table[: span.blocks(block_size)]
            tables += used + [0] * (width - len(used))
        return [
            *self.tokens,
            *positions,
            *slots,
            *self.logit_rows,
            *query_starts,
            *lengths,
            *context_starts,
            *tables,
        ]

    def table_width(self, block_size: int) -> int:
        return max(span.blocks(block_size) for span in self.spans)

    def on_device(self, numbers: torch.Tensor, block_size: int) -> "StepTensors":
        """Views of ``numbers`` (int32, on the device) by name."""
        tokens, count = len(self.tokens), len(self.spans)
        width = self.table_width(block_size)
        parts = numbers.split(
            [tokens, tokens, tokens, len(self.logit_rows), count + 1, count, count + 1, count * width]
        )
        return StepTensors(
            tokens=parts[0],
            positions=parts[1],
            logit_rows=parts[3],
            spans=PackedSpans(
                slots=parts[2],
                query_starts=parts[4],
                lengths=parts[5],
                context_starts=parts[6],
                tables=parts[7].view(count, width),
                singles=sum(span.count == 1 for span in self.spans),
                longest_span=max(span.count for span in self.spans),
                longest_context=max(span.start + span.count for span in self.spans),
            ),
        )


@dataclass(slots=True, frozen=True)
class StepTensors:
    """What a forward pass reads; int32 on the device."""

    tokens: torch.Tensor
    positions: torch.Tensor
    logit_rows: torch.Tensor
    spans: PackedSpans
