"""Attention straight from the pool's blocks: nothing is gathered for a decode, one tile at a time for a
prefill.

A decode's context is cut into parts of a fixed length, which threads compute one by one and ``merge`` puts
together: one sequence alone keeps all threads busy, and how many there are changes no result.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from infer_engine.model.kernels.jit import compiled, compiled_loosely
from infer_engine.model.kernels.micro import out_of_line
from infer_engine.model.kernels.micro_attention import TOKENS, add_weighted, dot_tokens
from infer_engine.model.kernels.products import floats
from infer_engine.model.kernels.rows import ONE, ZERO, exponential
from infer_engine.model.kernels.simd import PANEL

#: Tokens of context in a part of a decode; a multiple of every block size up to itself.
PART = 256
#: Queries of a prefill that attend together, and tokens of context that they take at a time.
TILE, REACH = 64, 128
_LEAST = np.float32(-1e30)


def tile_scratch(threads: int, sharing: int, head_dim: int) -> tuple[NDArray[np.float32], ...]:
    """What ``attend_tile`` works in, for each thread: queries, keys, values, scores, outputs, sums."""
    rows, padded = TILE * sharing, -(-head_dim // PANEL) * PANEL
    shapes = ((rows, head_dim), (head_dim, REACH), (REACH, padded), (rows, REACH), (rows, padded), (rows, 2))
    return tuple(np.zeros((threads, *shape), np.float32) for shape in shapes)


@compiled_loosely
def _soften(scores: Any, count: int, most: Any) -> Any:
    """Replace scores by exp(score - ``most``) and return their sum."""
    total = ZERO
    for n in range(count):
        weight = exponential(scores[n] - most)
        scores[n] = weight
        total += weight
    return total


@compiled_loosely
def _largest(scores: Any, count: int) -> Any:
    most = _LEAST
    for n in range(count):
        most = max(most, scores[n])
    return most


@compiled
def attend_part(
    queries: Any,
    layer: Any,
    shape: Any,
    table: Any,
    begin: int,
    end: int,
    kv_head: int,
    scores: Any,
    out: Any,
) -> None:
    """One token's queries [heads * head_dim] that share ``kv_head``, over tokens ``begin .. end`` of its
    context.

    ``layer`` is the pool's [planes * blocks, block_size * head_dim]; ``shape`` is (heads, kv_heads, head_dim,
    block_size, blocks of the pool). ``out`` [heads, 2 + head_dim] takes, of each head, the largest score, the
    sum of the weights and the weighted sum of the values.
    """
    out_of_line()
    heads, kv_heads, head_dim, block_size, blocks = shape
    sharing = heads // kv_heads
    scale = ONE / np.sqrt(np.float32(head_dim))
    for position in range(begin, end, block_size):
        tokens = min(block_size, end - position)
        keys = layer[kv_head * blocks + table[position // block_size]]
        for n in range(sharing):
            query = queries.ctypes.data + 4 * (kv_head * sharing + n) * head_dim
            for token in range(0, tokens, TOKENS):  # past the last one are others of its block
                out_at = scores.ctypes.data + 4 * (n * PART + position - begin + token)
                dot_tokens(query, keys.ctypes.data + 4 * token * head_dim, head_dim, scale, out_at)
    for n in range(sharing):
        head = out[kv_head * sharing + n]
        head[0] = _largest(scores[n], end - begin)
        head[1] = _soften(scores[n], end - begin, head[0])
        head[2:] = ZERO
    for position in range(begin, end, block_size):
        tokens = min(block_size, end - position)
        values = layer[(kv_heads + kv_head) * blocks + table[position // block_size]]
        for n in range(sharing):
            weights = scores.ctypes.data + 4 * (n * PART + position - begin)
            sums = out.ctypes.data + 4 * ((kv_head * sharing + n) * (2 + head_dim) + 2)
            add_weighted(weights, values.ctypes.data, tokens, head_dim, sums)


@compiled_loosely
def merge(parts: Any, head_dim: int, out: Any) -> None:
    """``parts`` [parts, heads, 2 + head_dim] as ``attend_part`` leaves them; ``out`` [heads * head_dim]."""
    for head in range(parts.shape[1]):
        most = _LEAST
        for part in range(parts.shape[0]):
            most = max(most, parts[part, head, 0])
        total = ZERO
        target = out[head * head_dim : (head + 1) * head_dim]
        target[:] = ZERO
        for part in range(parts.shape[0]):
            share = exponential(parts[part, head, 0] - most)
            total += share * parts[part, head, 1]
            for n in range(head_dim):
                target[n] += share * parts[part, head, 2 + n]
        for n in range(head_dim):
            target[n] /= total


@compiled
def _fetch_tile(
    layer: Any, shape: Any, table: Any, kv_head: int, begin: int, tokens: int, keys: Any, values: Any
) -> None:
    """Tokens ``begin ...`` of a context as the micro-kernels want their weights: ``keys`` [head_dim, REACH]
    on their side, ``values`` [REACH, head_dim and padding]."""
    _, kv_heads, head_dim, block_size, blocks = shape
    for token in range(tokens):
        position = begin + token
        block, at = table[position // block_size], position % block_size * head_dim
        key, value = layer[kv_head * blocks + block], layer[(kv_heads + kv_head) * blocks + block]
        for n in range(head_dim):
            keys[n, token] = key[at + n]
            values[token, n] = value[at + n]
    # Their weights are zero, but zero times what an overflow left there would not be.
    values[tokens:, :] = ZERO


@compiled
def _multiply(rows: int, x: Any, count: Any, weights: Any, out: Any, add: Any) -> None:
    """``out`` [rows, n] = or += ``x`` [rows, count] times ``weights`` [count, n]; n is a multiple of
    PANEL."""
    for column in range(0, weights.shape[1], PANEL):
        floats(
            rows,
            weights.ctypes.data + 4 * column,
            weights.strides[0],
            x.ctypes.data,
            x.strides[0],
            count,
            out.ctypes.data + 4 * column,
            out.strides[0],
            add,
        )


@compiled_loosely
def _fold(scores: Any, seen: int, sums: Any, out: Any) -> None:
    """Turn the first ``seen`` of ``scores`` [REACH] into weights and the rest into zeros; ``sums`` (largest
    score, sum of weights) and ``out``, what was attended before, are scaled to match."""
    if seen <= 0:
        scores[:] = ZERO
        return
    most = max(sums[0], _largest(scores, seen))
    fade = exponential(sums[0] - most)
    sums[1] = sums[1] * fade + _soften(scores, seen, most)
    sums[0] = most
    scores[seen:] = ZERO
    for n in range(out.size):
        out[n] *= fade


@compiled
def attend_tile(
    queries: Any, first: int, layer: Any, shape: Any, table: Any, kv_head: int, scratch: Any, out: Any
) -> None:
    """The queries [count, heads * head_dim] of one sequence at positions ``first ...`` that share
    ``kv_head``, each over the context up to itself; ``out`` is like ``queries``. ``scratch`` is one thread's,
    of ``tile_scratch``."""
    out_of_line()
    heads, kv_heads, head_dim, _, _ = shape
    q, k, v, scores, o, sums = scratch
    count, sharing = queries.shape[0], heads // kv_heads
    rows = count * sharing
    scale = ONE / np.sqrt(np.float32(head_dim))
    for row in range(rows):
        head = (kv_head * sharing + row % sharing) * head_dim
        for n in range(head_dim):
            q[row, n] = queries[row // sharing, head + n] * scale
        o[row, :] = ZERO
        sums[row, 0], sums[row, 1] = _LEAST, ZERO
    for begin in range(0, first + count, REACH):
        tokens = min(REACH, first + count - begin)
        _fetch_tile(layer, shape, table, kv_head, begin, tokens, k, v)
        _multiply(rows, q, head_dim, k, scores, np.int64(0))
        for row in range(rows):
            seen = min(tokens, first + row // sharing + 1 - begin)
            _fold(scores[row], seen, sums[row], o[row])
        _multiply(rows, scores, np.int64(REACH), v, o, np.int64(1))
    for row in range(rows):
        head = (kv_head * sharing + row % sharing) * head_dim
        for n in range(head_dim):
            out[row // sharing, head + n] = o[row, n] / sums[row, 1]
