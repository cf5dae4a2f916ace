"""The forward pass as one thread of a team computes it: phases of independent tasks, each of
which begins when the one before is done.

It computes what ``model/llama.py`` computes. That one says it in torch's words and is the reference; at a
millisecond or two for each layer and batch, its two dozen calls into torch a layer would cost more than the
arithmetic, so this one never leaves compiled code between the embedding and the logits.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from infer_engine.model.kernels.attention import attend_part, attend_tile, merge
from infer_engine.model.kernels.jit import compiled
from infer_engine.model.kernels.products import HALF, multiply_panel
from infer_engine.model.kernels.rows import gated, norm, quantise, rotate
from infer_engine.model.kernels.simd import PANEL
from infer_engine.model.kernels.team import claim, complete

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

#: The matrices of a layer, in the order of ``Parameters.matrices``.
QKV, OUTPUT, GATE_UP, DOWN = 0, 1, 2, 3
PHASES_PER_LAYER = 10


class Shape(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    block_size: int
    #: Of the pool's storage, for each of its planes.
    blocks: int


class Parameters(NamedTuple):
    #: int64 [layers, 4, 2]: how each matrix is stored (``products.py``) and its address.
    matrices: Integers
    #: int64 [2]: the same of the output matrix.
    head: Integers
    #: fp32 [layers, hidden].
    attention_norms: Floats
    ffn_norms: Floats
    #: fp32 [hidden].
    last_norm: Floats
    epsilon: np.float32


class Step(NamedTuple):
    #: fp32 [T, head_dim]: cosine and sine of each pair, by turns.
    rotations: Floats
    #: int64 [T]: where each token's K and V go.
    slots: Integers
    #: int64 [spans, most blocks].
    tables: Integers
    #: int64 [tasks, 5], for each KV head: span, first row, rows (0: a part of a decode), begin and end of the
    #: context; a part's place among the parts is its number less the number of tiles, which come first.
    tasks: Integers
    tiles: int
    #: int64 [T, 2]: the first part of a row that decodes, and how many; (0, 0) of others.
    parts: Integers
    #: int64 [rows that want logits].
    logit_rows: Integers


class Buffers(NamedTuple):
    #: fp32 [T, n], padded to panels: the residual stream, and what the phases hand on.
    x: Floats
    qkv: Floats
    row: Floats
    hidden: Floats
    #: The input of the next product: int16 [T, n], fp32 [T, groups, 2].
    shorts: NDArray[np.int16]
    scales: Floats
    #: fp32 [parts, heads, 2 + head_dim], and each thread's [threads, heads / kv_heads, PART].
    parts: Floats
    scores: Floats
    #: fp32 [threads, rows, 2, PANEL]: gate and up before they meet.
    tile: Floats
    logits: Floats


@compiled
def _share(tasks: int, threads: int) -> int:
    """Tasks to claim at once: few enough that the last ones are spread evenly."""
    return max(1, tasks // (8 * threads))


@compiled
def _multiply(
    matrix: Any,
    columns: int,
    panels: int,
    inputs: Any,
    out: Any,
    add: Any,
    counters: Any,
    phase: int,
    threads: int,
) -> None:
    share = _share(panels, threads)
    rows = out.shape[0]
    mine = 0
    while True:
        first = claim(counters, phase, share)
        if first >= panels:
            break
        mine += min(share, panels - first)
        for panel in range(first, min(first + share, panels)):
            at = out.ctypes.data + 4 * PANEL * panel
            multiply_panel(matrix[0], matrix[1], panel, columns, inputs, rows, at, out.strides[0], add)
    complete(counters, phase, mine, panels)


@compiled
def _gate_up(
    matrix: Any,
    columns: int,
    panels: int,
    inputs: Any,
    tile: Any,
    out: Any,
    counters: Any,
    phase: int,
    threads: int,
) -> None:
    """The panels of gate and up lie by turns: a thread has both halves of what it multiplies."""
    share = _share(panels, threads)
    rows, replace = out.shape[0], np.int64(0)
    mine = 0
    while True:
        first = claim(counters, phase, share)
        if first >= panels:
            break
        mine += min(share, panels - first)
        for panel in range(first, min(first + share, panels)):
            for half in range(2):
                at = tile.ctypes.data + 4 * PANEL * half
                multiply_panel(
                    matrix[0],
                    matrix[1],
                    2 * panel + half,
                    columns,
                    inputs,
                    rows,
                    at,
                    tile.strides[0],
                    replace,
                )
            for row in range(rows):
                gated(tile[row, 0], tile[row, 1], PANEL, out[row, panel * PANEL :])
    complete(counters, phase, mine, panels)


@compiled
def _normed_rows(
    x: Any, rows: Any, weight: Any, epsilon: Any, kind: int, buffers: Any, counters: Any, phase: int
) -> None:
    """Norm ``rows`` of ``x`` into the first rows of the next product's input."""
    mine = 0
    while True:
        number = claim(counters, phase, np.int64(1))
        if number >= rows.size:
            break
        mine += 1
        norm(x[rows[number]], weight, epsilon, buffers.row[number])
        if kind != HALF:
            quantise(buffers.row[number], weight.size, buffers.shorts[number], buffers.scales[number])
    complete(counters, phase, mine, rows.size)


@compiled
def _rotate_and_store(shape: Any, step: Any, buffers: Any, layer: Any, counters: Any, phase: int) -> None:
    """Turn queries and keys, and write keys and values where the block tables say."""
    d = shape.head_dim
    turned = shape.heads + shape.kv_heads
    mine = 0
    while True:
        row = claim(counters, phase, np.int64(1))
        if row >= step.slots.size:
            break
        mine += 1
        qkv = buffers.qkv[row]
        for head in range(turned):
            rotate(qkv[head * d : (head + 1) * d], step.rotations[row])
        block, at = step.slots[row] // shape.block_size, step.slots[row] % shape.block_size * d
        for plane in range(2 * shape.kv_heads):
            first = (shape.heads + plane) * d
            into = layer[plane * shape.blocks + block]
            for n in range(d):
                into[at + n] = qkv[first + n]
    complete(counters, phase, mine, step.slots.size)


@compiled
def _attend(
    shape: Any, step: Any, buffers: Any, scratch: Any, layer: Any, thread: int, counters: Any, phase: int
) -> None:
    pool_shape = (shape.heads, shape.kv_heads, shape.head_dim, shape.block_size, shape.blocks)
    q, k, v, scores, o, sums = scratch
    own = (q[thread], k[thread], v[thread], scores[thread], o[thread], sums[thread])
    mine = 0
    while True:
        number = claim(counters, phase, np.int64(1))
        if number >= step.tasks.shape[0] * shape.kv_heads:
            break
        mine += 1
        task, kv_head = number // shape.kv_heads, number % shape.kv_heads
        span, row, rows, begin, end = step.tasks[task]
        table = step.tables[span]
        if rows == 0:
            out = buffers.parts[task - step.tiles]
            queries = buffers.qkv[row]
            attend_part(queries, layer, pool_shape, table, begin, end, kv_head, buffers.scores[thread], out)
        else:
            queries, out = buffers.qkv[row : row + rows], buffers.row[row : row + rows]
            attend_tile(queries, begin, layer, pool_shape, table, kv_head, own, out)
    complete(counters, phase, mine, step.tasks.shape[0] * shape.kv_heads)


@compiled
def _finish_rows(
    values: Any, columns: int, kind: int, step: Any, buffers: Any, counters: Any, phase: int
) -> None:
    """Make ``values`` the next product's input."""
    mine = 0
    while True:
        row = claim(counters, phase, np.int64(1))
        if row >= step.slots.size:
            break
        mine += 1
        if kind != HALF:
            quantise(values[row], columns, buffers.shorts[row], buffers.scales[row])
    complete(counters, phase, mine, step.slots.size)


@compiled
def _merge_rows(shape: Any, kind: int, step: Any, buffers: Any, counters: Any, phase: int) -> None:
    columns = shape.heads * shape.head_dim
    mine = 0
    while True:
        row = claim(counters, phase, np.int64(1))
        if row >= step.slots.size:
            break
        mine += 1
        first, count = step.parts[row]
        if count:
            merge(buffers.parts[first : first + count], shape.head_dim, buffers.row[row])
        if kind != HALF:
            quantise(buffers.row[row], columns, buffers.shorts[row], buffers.scales[row])
    complete(counters, phase, mine, step.slots.size)


@compiled
def forward(
    shape: Any,
    parameters: Any,
    step: Any,
    buffers: Any,
    scratch: Any,
    pool: Any,
    counters: Any,
    thread: int,
    threads: int,
) -> None:
    """``buffers.x`` holds the tokens' embeddings; the logits of ``step.logit_rows`` are in ``buffers.logits``
    when all threads have returned. ``counters`` are zero before."""
    a, b = shape, buffers
    width = a.heads * a.head_dim
    rows = np.arange(step.slots.size)
    # Not written where they are used: numba compiles a function again for each constant that it is given.
    replace, add = np.int64(0), np.int64(1)
    inputs = (b.row, b.shorts, b.scales)
    phase = 0
    for n in range(a.layers):
        matrices, layer = parameters.matrices[n], pool[n]
        _normed_rows(
            b.x, rows, parameters.attention_norms[n], parameters.epsilon, matrices[QKV, 0], b, counters, phase
        )
        _multiply(
            matrices[QKV],
            a.hidden,
            b.qkv.shape[1] // PANEL,
            inputs,
            b.qkv,
            replace,
            counters,
            phase + 1,
            threads,
        )
        _rotate_and_store(a, step, b, layer, counters, phase + 2)
        _attend(a, step, b, scratch, layer, thread, counters, phase + 3)
        _merge_rows(a, matrices[OUTPUT, 0], step, b, counters, phase + 4)
        _multiply(
            matrices[OUTPUT], width, b.x.shape[1] // PANEL, inputs, b.x, add, counters, phase + 5, threads
        )
        _normed_rows(
            b.x,
            rows,
            parameters.ffn_norms[n],
            parameters.epsilon,
            matrices[GATE_UP, 0],
            b,
            counters,
            phase + 6,
        )
        _gate_up(
            matrices[GATE_UP],
            a.hidden,
            b.hidden.shape[1] // PANEL,
            inputs,
            b.tile[thread],
            b.hidden,
            counters,
            phase + 7,
            threads,
        )
        _finish_rows(b.hidden, a.feed_forward, matrices[DOWN, 0], step, b, counters, phase + 8)
        gated_inputs = (b.hidden, b.shorts, b.scales)
        _multiply(
            matrices[DOWN],
            a.feed_forward,
            b.x.shape[1] // PANEL,
            gated_inputs,
            b.x,
            add,
            counters,
            phase + 9,
            threads,
        )
        phase += PHASES_PER_LAYER
    if step.logit_rows.size:
        _normed_rows(
            b.x,
            step.logit_rows,
            parameters.last_norm,
            parameters.epsilon,
            parameters.head[0],
            b,
            counters,
            phase,
        )
        _multiply(
            parameters.head,
            a.hidden,
            b.logits.shape[1] // PANEL,
            inputs,
            b.logits,
            replace,
            counters,
            phase + 1,
            threads,
        )
