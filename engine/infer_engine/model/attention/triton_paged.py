# pyright: basic, reportMissingImports=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
# ruff: noqa: N803
# Kernel code is compiled by Triton, not run by Python: its pointers, block values and launches have no types,
# and its compile-time constants are in capitals. Triton comes with torch for CUDA; elsewhere this module may
# not be importable.
"""Paged attention in Triton, for decodes and for chunks of a prefill.

A program computes one tile of queries of one sequence for one KV head: the query heads that share the KV head
are rows of the tile, so K and V are read once for all of them. It walks the context in tiles of tokens,
finding each token's page in the block table, and keeps a running softmax in fp32.

A context of a decode is cut into parts of fixed length that programs of their own compute, and a second
kernel joins: otherwise a long context alone in the batch would occupy as many processors as there are KV
heads. The length of a part is fixed, never the number, so a sequence's result does not depend on its
neighbours.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from infer_engine.model.attention.packed import PackedSpans

#: Rows (queries x heads that share a KV head) in a tile of a chunk, and the fewest that a matrix product has.
CHUNK_ROWS = 64
FEWEST_ROWS = 16
#: Tokens of the context in a tile.
CONTEXT_TILE = 64
#: Tokens of the context that one program of a decode computes.
PART_TOKENS = 512
#: log2(e): the kernel's exponentials are powers of two.
_LOG2_E = 1.4426950408889634


@triton.jit
def _attend_range(
    q,  # [ROWS, DIM]
    positions,  # [ROWS]: the last token of the context that each row sees
    first,
    end,  # tokens first .. end of the context are looked at
    keys,
    values,
    table,
    kv_head,
    scale,
    k_page,
    k_slot,
    k_head,
    v_page,
    v_slot,
    v_head,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Running maximum (base 2), sum and weighted values of rows over a range of the context."""
    dims = tl.arange(0, DIM)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, DIM], tl.float32)
    for begin in range(first, end, TILE):
        tokens = begin + tl.arange(0, TILE)
        there = tokens < end
        pages = tl.load(table + tokens // PAGE, mask=there, other=0).to(tl.int64)
        slots = tokens % PAGE
        # What lies behind the context may be NaN, and zero times NaN is NaN: it must not be read.
        loaded = there[:, None] & (dims < HEAD_DIM)[None, :]
        k = tl.load(
            keys + (pages * k_page + slots * k_slot + kv_head * k_head)[:, None] + dims[None, :],
            mask=loaded,
            other=0.0,
        )
        v = tl.load(
            values + (pages * v_page + slots * v_slot + kv_head * v_head)[:, None] + dims[None, :],
            mask=loaded,
            other=0.0,
        )
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        seen = there[None, :] & (tokens[None, :] <= positions[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        # A row that has seen nothing yet has no maximum; zero in its place keeps the differences numbers.
        anchor = tl.where(higher == float("-inf"), 0.0, higher)
        shares = tl.exp2(scores - anchor[:, None])
        fade = tl.exp2(top - anchor)
        total = total * fade + tl.sum(shares, 1)
        weighted = weighted * fade[:, None] + tl.dot(shares.to(v.dtype), v, input_precision=PRECISION)
        top = higher
    return top, total, weighted


# Whatever changes from step to step must not be compiled in: a recompilation takes longer than many steps.
@triton.jit(
    do_not_specialize=["first_sequence", "table_width"],
    do_not_specialize_on_alignment=["tables", "query_starts", "lengths"],
)
def _attend(
    out,  # [T, heads, HEAD_DIM]; with parts: sums [singles, parts, heads, HEAD_DIM] in fp32
    tops,  # with parts: [singles, parts, heads, 2]: maximum and total of each row
    queries,
    keys,
    values,
    tables,
    query_starts,
    lengths,
    first_sequence,
    heads,
    table_width,
    scale,
    q_row,
    q_head,
    k_page,
    k_slot,
    k_head,
    v_page,
    v_slot,
    v_head,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,  # tokens in a part of the context; 0: not cut
    PRECISION: tl.constexpr,
):
    sequence = first_sequence + tl.program_id(0)
    kv_head = tl.program_id(1)
    third = tl.program_id(2)  # the tile of queries, or the part of the context
    query_start = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - query_start
    length = tl.load(lengths + sequence)
    tile_tokens: tl.constexpr = ROWS // GROUP
    first_query = 0 if PART else third * tile_tokens
    first = third * PART
    # One return at most, at the end: programs with nothing to do have empty ranges and masks instead.
    rows = tl.arange(0, ROWS)
    token = first_query + rows // GROUP
    real = (rows < tile_tokens * GROUP) & (token < count)
    positions = tl.where(real, length - count + token, -1)
    end = tl.minimum(length, length - count + first_query + tile_tokens)
    if PART:
        end = tl.minimum(end, first + PART)
    end = tl.where(first_query < count, end, first)
    head = kv_head * GROUP + rows % GROUP
    dims = tl.arange(0, DIM)
    stored = real[:, None] & (dims < HEAD_DIM)[None, :]
    row = (query_start + token).to(tl.int64)
    q = tl.load(
        queries + (row * q_row + head * q_head)[:, None] + dims[None, :],
        mask=stored,
        other=0.0,
    )
    top, total, weighted = _attend_range(
        q,
        positions,
        first,
        end,
        keys,
        values,
        tables + sequence.to(tl.int64) * table_width,
        kv_head,
        scale,
        k_page,
        k_slot,
        k_head,
        v_page,
        v_slot,
        v_head,
        ROWS,
        DIM,
        HEAD_DIM,
        PAGE,
        TILE,
        PRECISION,
    )
    if PART:
        place = (sequence.to(tl.int64) * tl.num_programs(2) + third) * heads + head
        tl.store(tops + place * 2, top, mask=real)
        tl.store(tops + place * 2 + 1, total, mask=real)
        tl.store(out + place[:, None] * HEAD_DIM + dims[None, :], weighted, mask=stored)
    else:
        # Rows that are not stored have seen nothing.
        weighted = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(
            out + (row * heads + head)[:, None] * HEAD_DIM + dims[None, :],
            weighted.to(out.dtype.element_ty),
            mask=stored,
        )


@triton.jit(do_not_specialize=["parts"])
def _join(
    out,  # [singles, heads, HEAD_DIM]
    sums,  # as _attend left them
    tops,
    heads,
    parts,
    DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Parts of one sequence's context for one head, joined. Parts behind its end have the maximum -inf."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, DIM)
    there = dims < HEAD_DIM
    # Every context has a first part, and in it a first token that is seen.
    top = tl.load(tops + (sequence * parts * heads + head) * 2)
    total = tl.load(tops + (sequence * parts * heads + head) * 2 + 1)
    weighted = tl.load(sums + (sequence * parts * heads + head) * HEAD_DIM + dims, mask=there, other=0.0)
    for part in range(1, parts):
        place = (sequence * parts + part) * heads + head
        its_top = tl.load(tops + place * 2)
        higher = tl.maximum(top, its_top)
        fade, its_fade = tl.exp2(top - higher), tl.exp2(its_top - higher)
        its_total = tl.load(tops + place * 2 + 1)
        its_weighted = tl.load(sums + place * HEAD_DIM + dims, mask=there, other=0.0)
        total = total * fade + its_total * its_fade
        weighted = weighted * fade + its_weighted * its_fade
        top = higher
    tl.store(
        out + (sequence * heads + head) * HEAD_DIM + dims,
        (weighted / total).to(out.dtype.element_ty),
        mask=there,
    )


class TritonKernel:
    """See ``PagedKernel``. Any page size; head dimensions up to 256; fp16, bf16 and fp32."""

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
        page, kv_heads = keys.shape[1:3]
        assert head_dim <= 256
        assert queries.stride(2) == keys.stride(3) == values.stride(3) == 1
        group = heads // kv_heads
        inputs = (queries, keys, values, spans.tables, spans.query_starts, spans.lengths)
        numbers = (heads, spans.tables.stride(0), head_dim**-0.5 * _LOG2_E)
        strides = (*queries.stride()[:2], *keys.stride()[:3], *values.stride()[:3])
        few = max(FEWEST_ROWS, triton.next_power_of_2(group))
        singles, sequences = spans.singles, spans.lengths.shape[0]
        if singles:
            constants = launch_constants(few, group, head_dim, page, queries.element_size())
            parts = -(-spans.longest_context // PART_TOKENS)
            grid = (singles, kv_heads, parts)
            if parts == 1:
                _attend[grid](out, out, *inputs, 0, *numbers, *strides, PART=0, **constants)
            else:
                sums = queries.new_empty((singles, parts, heads, head_dim), dtype=torch.float32)
                tops = queries.new_empty((singles, parts, heads, 2), dtype=torch.float32)
                _attend[grid](sums, tops, *inputs, 0, *numbers, *strides, PART=PART_TOKENS, **constants)
                _join[(singles, heads)](
                    out, sums, tops, heads, parts, DIM=constants["DIM"], HEAD_DIM=head_dim, num_warps=1
                )
        if singles < sequences:
            rows = max(CHUNK_ROWS, few)
            constants = launch_constants(rows, group, head_dim, page, queries.element_size())
            tiles = -(-spans.longest_span // (rows // group))
            grid = (sequences - singles, kv_heads, tiles)
            _attend[grid](out, out, *inputs, singles, *numbers, *strides, PART=0, **constants)


def launch_constants(rows: int, group: int, head_dim: int, page: int, element_bytes: int) -> dict[str, Any]:
    """What ``_attend`` is compiled for, but for the parts; with Triton's own options."""
    padded_dim = max(16, triton.next_power_of_2(head_dim))
    return {
        "ROWS": rows,
        "GROUP": group,
        "DIM": padded_dim,
        "HEAD_DIM": head_dim,
        "PAGE": page,
        # Keys and values of two tiles fit the shared memory of any GPU.
        "TILE": max(16, min(CONTEXT_TILE, CONTEXT_TILE * 256 // (padded_dim * element_bytes))),
        # For fp32 the tensor cores would round to 10 bits.
        "PRECISION": "ieee",
        # A large tile in the registers of four warps would spill.
        "num_warps": 8 if rows * padded_dim >= CHUNK_ROWS * 128 else 4,
        "num_stages": 2,
    }
