"""Attention over pages: gather each context from the pool, then torch's own kernel.

It runs anywhere and is the oracle for faster paths.

Sequences that compute one token (decodes, mostly) attend together, padded to the longest of their group; the
query heads that share a KV head are folded into the query length, so that K and V are read once and never
repeated. Longer chunks attend one by one, in tiles of queries that see no more context than they need.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from infer_engine.model.attention.pool import KvPool

#: Queries of a chunk that attend at once; bounds the mask and skips most of the causally hidden half.
TILE_QUERIES = 256
#: Sequences attend together when the shortest has at least half the blocks of the longest, so that a group
#: gathers at most twice what it needs; with fewer blocks than these in any case.
_SMALL_CONTEXT_BLOCKS = 16


@dataclass(slots=True, frozen=True)
class Span:
    """One chunk of a sequence: tokens ``start .. start + count`` of a context whose blocks are ``table``."""

    start: int
    count: int
    table: list[int]

    def blocks(self, block_size: int) -> int:
        """Blocks that the context covers when the chunk is done."""
        return -(-(self.start + self.count) // block_size)


@dataclass(slots=True)
class _Gathering:
    """Rows ``first .. last`` of the packed batch, which attend in one call.

    It is a group of ``sequences`` with one query each, or (0 sequences) a tile of queries of one sequence.
    ``pool_rows`` as ``KvPool.block_rows`` makes them, for ``context // block_size`` blocks of each sequence;
    ``mask`` is added to the scores: [sequences, 1, 1, context] of a group, [queries, context] of a tile.
    """

    first: int
    last: int
    sequences: int
    context: int
    pool_rows: torch.Tensor
    mask: torch.Tensor


class PagedAttention:
    """Attention of one step, the same for all layers. The packed batch holds the spans' tokens one after
    another; spans of one token come first, the longest context first (``pack_order``)."""

    def __init__(self, pool: KvPool, spans: list[Span], scratch: "Scratch", dtype: torch.dtype) -> None:
        self._pool = pool
        self._scratch = scratch
        device = scratch.device
        slots = [
            span.table[position // pool.block_size] * pool.block_size + position % pool.block_size
            for span in spans
            for position in range(span.start, span.start + span.count)
        ]
        self._slot_rows = pool.slot_rows(torch.tensor(slots, device=device))
        self._gatherings: list[_Gathering] = []
        singles = sum(span.count == 1 for span in spans)
        for first, last in _groups(spans[:singles], pool.block_size):
            self._gatherings.append(_decode_group(pool, spans[first:last], first, dtype, device))
        row = singles
        for span in spans[singles:]:
            self._gatherings += _tiles(pool, span, row, dtype, device)
            row += span.count

    def __call__(self, layer: int, queries: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """Write ``kv`` [T, 2 kv_heads, head_dim], then attend ``queries`` [T, heads, head_dim] over each
        token's own context; both rotated. Returns [T, heads * head_dim]."""
        pool = self._pool
        pool.write(layer, self._slot_rows, kv)
        heads, head_dim = queries.shape[1:]
        kv_heads = kv.shape[1] // 2
        out = torch.empty_like(queries)
        for g in self._gatherings:
            blocks = (g.sequences or 1) * g.context // pool.block_size
            gathered = self._scratch.take(2 * kv_heads * blocks, pool.block_size * head_dim)
            pool.gather(layer, g.pool_rows, gathered)
            context = gathered.view(2, kv_heads, g.sequences or 1, g.context, head_dim).transpose(1, 2)
            q = queries[g.first : g.last]
            if g.sequences:
                q = q.view(g.sequences, kv_heads, heads // kv_heads, head_dim)
                out[g.first : g.last].view_as(q).copy_(
                    functional.scaled_dot_product_attention(q, context[0], context[1], attn_mask=g.mask)
                )
            else:
                attended = functional.scaled_dot_product_attention(
                    q.transpose(0, 1).unsqueeze(0), context[0], context[1], attn_mask=g.mask, enable_gqa=True
                )
                out[g.first : g.last].copy_(attended[0].transpose(0, 1))
        return out.view(-1, heads * head_dim)


class Scratch:
    """Memory for gathered contexts, kept from call to call: fresh pages would cost more than the gathering.

    It grows to the largest gathering seen: about twice one layer of the pool at most.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._memory = torch.empty(0, dtype=dtype, device=device)

    def take(self, rows: int, columns: int) -> torch.Tensor:
        """An uninitialised [rows, columns], valid until the next call."""
        if self._memory.numel() < rows * columns:
            self._memory = self._memory.new_empty(rows * columns * 5 // 4)
        return self._memory[: rows * columns].view(rows, columns)


def pack_order(span: Span) -> tuple[bool, int]:
    """Sort key of the packed batch: spans of one token first, the longest context first."""
    return (span.count > 1, -span.start)


def _groups(singles: list[Span], block_size: int) -> list[tuple[int, int]]:
    """Cut spans of one token, longest context first, into runs that attend together."""
    groups: list[tuple[int, int]] = []
    first = 0
    for index, span in enumerate(singles):
        longest = singles[first].blocks(block_size)
        if longest > _SMALL_CONTEXT_BLOCKS and 2 * span.blocks(block_size) < longest:
            groups.append((first, index))
            first = index
    if singles:
        groups.append((first, len(singles)))
    return groups


def _decode_group(
    pool: KvPool, spans: list[Span], first: int, dtype: torch.dtype, device: torch.device
) -> _Gathering:
    blocks = spans[0].blocks(pool.block_size)
    # Padding reads the sequence's own first block, whose contents are sane; the mask hides it.
    tables = [_padded(span.table[: span.blocks(pool.block_size)], blocks) for span in spans]
    lengths = torch.tensor([span.start + 1 for span in spans], device=device)
    context = blocks * pool.block_size
    hidden = torch.arange(context, device=device) >= lengths.unsqueeze(1)
    return _Gathering(
        first=first,
        last=first + len(spans),
        sequences=len(spans),
        context=context,
        pool_rows=pool.block_rows(torch.tensor(tables, device=device).flatten()),
        mask=_additive(hidden, dtype)[:, None, None, :],
    )


def _padded(table: list[int], blocks: int) -> list[int]:
    return table + table[:1] * (blocks - len(table))


def _tiles(pool: KvPool, span: Span, row: int, dtype: torch.dtype, device: torch.device) -> list[_Gathering]:
    tiles: list[_Gathering] = []
    for offset in range(0, span.count, TILE_QUERIES):
        part = Span(span.start + offset, min(TILE_QUERIES, span.count - offset), span.table)
        blocks = part.blocks(pool.block_size)
        context = blocks * pool.block_size
        positions = torch.arange(part.start, part.start + part.count, device=device)
        hidden = torch.arange(context, device=device) > positions.unsqueeze(1)
        tiles.append(
            _Gathering(
                first=row + offset,
                last=row + offset + part.count,
                sequences=0,
                context=context,
                pool_rows=pool.block_rows(torch.tensor(span.table[:blocks], device=device)),
                mask=_additive(hidden, dtype),
            )
        )
    return tiles


def _additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
