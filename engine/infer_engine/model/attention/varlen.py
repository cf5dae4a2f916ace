"""Paged attention by torch's own FlashAttention: ``torch.nn.attention.varlen`` with a block table."""

import torch

from infer_engine.model.attention.packed import PackedSpans

#: What FlashAttention 2, as torch builds it, takes.
PAGE_MULTIPLE = 256
HEAD_DIM_MULTIPLE, MOST_HEAD_DIM = 8, 256
LEAST_CAPABILITY = (8, 0)


class VarlenKernel:
    """See ``PagedKernel``; the pool's layout must be pages.

    One split always: with several, torch 2.13 returns NaN or wrong rows for pages, and a result would depend
    on the batch.
    """

    capturable = True

    def __init__(self) -> None:
        # It takes seconds to import.
        from torch.nn.attention import varlen

        self._attend = varlen.varlen_attn_out

    def __call__(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        spans: PackedSpans,
    ) -> None:
        self._attend(
            out,
            queries,
            keys,
            values,
            spans.query_starts,
            # FlashAttention 2 wants the sums although it takes the lengths from ``seqused_k``.
            spans.context_starts,
            spans.longest_span,
            spans.longest_context,
            window_size=(-1, 0),  # causal, the last query on the last token
            enable_gqa=queries.shape[1] != keys.shape[2],
            seqused_k=spans.lengths,
            block_table=spans.tables,
            num_splits=1,
        )


def refusal(
    dtype: torch.dtype, block_size: int, head_dim: int, capability: tuple[int, int] | None
) -> str | None:
    """Why this kernel cannot be used, or None. ``capability`` is the GPU's, None without one."""
    if capability is None or capability < LEAST_CAPABILITY:
        return f"it needs a GPU of compute capability 8.0 or newer (this device: {capability or 'no GPU'})"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in fp16 and bf16 only (given: {dtype})"
    if block_size % PAGE_MULTIPLE:
        return f"it needs blocks of a multiple of {PAGE_MULTIPLE} tokens (given: {block_size})"
    if head_dim % HEAD_DIM_MULTIPLE or head_dim > MOST_HEAD_DIM:
        return (
            f"it needs a head dimension of a multiple of {HEAD_DIM_MULTIPLE}, at most {MOST_HEAD_DIM} "
            f"(given: {head_dim})"
        )
    return None
