"""Paged attention in plain torch operations of fixed shape: the twin of the kernels, for any device.

It reads whole block tables, however short the contexts, so it is for checking and for small batches, not for
speed. Like a kernel it takes everything that changes from step to step from tensors, so a step of single
tokens can be captured into a CUDA graph.
"""

import torch
from torch.nn import functional

from infer_engine.model.attention.packed import PackedSpans


class GatherKernel:
    """See ``PagedKernel``."""

    capturable = True

    def __call__(
        self,
        out: torch.Tensor,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        spans: PackedSpans,
    ) -> None:
        heads, head_dim = queries.shape[1:]
        block_size, kv_heads = keys.shape[1:3]
        singles = spans.singles
        context = spans.tables.shape[1] * block_size
        reach = torch.arange(context, device=queries.device)
        if singles:
            # A block behind the context may be anyone's, and a masked NaN is still a NaN: take the first.
            needed = torch.arange(spans.tables.shape[1], device=queries.device) * block_size
            tables = spans.tables[:singles]
            tables = torch.where(needed < spans.lengths[:singles, None], tables, tables[:, :1])
            shown = (reach < spans.lengths[:singles, None])[:, None, None, :]
            k, v = (pages[tables].flatten(1, 2).transpose(1, 2) for pages in (keys, values))
            q = queries[:singles].view(singles, kv_heads, heads // kv_heads, head_dim)
            attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=shown)
            out[:singles] = attended.reshape(singles, heads, head_dim)
        row = singles
        # Only steps that no graph replays have longer spans, so their bounds may be read on the host.
        for index in range(singles, spans.lengths.shape[0]):
            count = int(spans.query_starts[index + 1] - spans.query_starts[index])
            length = int(spans.lengths[index])
            table = spans.tables[index, : -(-length // block_size)]
            k, v = (pages[table].flatten(0, 1)[:length].transpose(0, 1)[None] for pages in (keys, values))
            q = queries[row : row + count].transpose(0, 1)[None]
            positions = torch.arange(length - count, length, device=queries.device)
            shown = reach[:length] <= positions[:, None]
            attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=shown, enable_gqa=True)
            out[row : row + count] = attended[0].transpose(0, 1)
            row += count
