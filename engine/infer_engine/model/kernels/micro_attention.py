"""The micro-kernels of a decode's attention: one query against the tokens of a block, in place.

Arguments are addresses in bytes and counts; ``head_dim`` is a multiple of WIDTH.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from infer_engine.model.kernels.simd import (
    F32,
    FLOATS,
    I32,
    I64,
    WIDTH,
    Builder,
    Value,
    load,
    multiply_add,
    splat,
    store,
    zero,
)

#: Tokens whose scores are made together.
TOKENS = 4
_CHUNK_BYTES = 4 * WIDTH


def _dot_tokens(b: Builder, arguments: list[Value]) -> None:
    query, keys, head_dim, scale, out = arguments
    sums = [cgutils.alloca_once_value(b, zero(FLOATS)) for _ in range(TOKENS)]
    stride = b.mul(head_dim, I64(4))
    with cgutils.for_range(b, b.udiv(head_dim, I64(WIDTH))) as loop:
        at = b.mul(loop.index, I64(_CHUNK_BYTES))
        q = load(b, b.add(query, at), 0, FLOATS)
        for token, total in enumerate(sums):
            key = load(b, b.add(b.add(keys, at), b.mul(stride, I64(token))), 0, FLOATS)
            b.store(multiply_add(b, q, key, b.load(total)), total)
    scores = _sum_lanes(b, [b.load(total) for total in sums])
    store(b, b.fmul(scores, _splat_four(b, scale)), out, 0)


def _sum_lanes(b: Builder, vectors: list[Value]) -> Value:
    """The sum of each of four vectors' lanes, as a vector of four: the two halves of two vectors are added at
    once, until one vector is left."""
    width = WIDTH
    while width > TOKENS:
        width //= 2
        low, high = list(range(width)), list(range(width, 2 * width))
        vectors = [b.fadd(_pick(b, one, one, low), _pick(b, one, one, high)) for one in vectors]
    first, second, third, fourth = vectors
    ab = b.fadd(_pick(b, first, second, [0, 1, 4, 5]), _pick(b, first, second, [2, 3, 6, 7]))
    cd = b.fadd(_pick(b, third, fourth, [0, 1, 4, 5]), _pick(b, third, fourth, [2, 3, 6, 7]))
    return b.fadd(_pick(b, ab, cd, [0, 2, 4, 6]), _pick(b, ab, cd, [1, 3, 5, 7]))


def _pick(b: Builder, x: Value, y: Value, lanes: list[int]) -> Value:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def _splat_four(b: Builder, scalar: Value) -> Value:
    undefined = ir.Constant(ir.VectorType(F32, TOKENS), ir.Undefined)
    return _pick(b, b.insert_element(undefined, scalar, I32(0)), undefined, [0] * TOKENS)


def _add_weighted(b: Builder, arguments: list[Value]) -> None:
    weights, values, tokens, head_dim, out = arguments
    chunks = b.udiv(head_dim, I64(WIDTH))
    fours = b.udiv(chunks, I64(4))
    with cgutils.for_range(b, fours) as loop:
        _add_chunks(b, weights, values, tokens, head_dim, out, b.mul(loop.index, I64(4 * _CHUNK_BYTES)), 4)
    with cgutils.for_range(b, b.urem(chunks, I64(4))) as loop:
        chunk = b.add(b.mul(fours, I64(4)), loop.index)
        _add_chunks(b, weights, values, tokens, head_dim, out, b.mul(chunk, I64(_CHUNK_BYTES)), 1)


def _add_chunks(
    b: Builder,
    weights: Value,
    values: Value,
    tokens: Value,
    head_dim: Value,
    out: Value,
    at: Value,
    chunks: int,
) -> None:
    target = b.add(out, at)
    sums = [cgutils.alloca_once(b, FLOATS) for _ in range(chunks)]
    for chunk, total in enumerate(sums):
        b.store(load(b, target, chunk * _CHUNK_BYTES, FLOATS), total)
    stride = b.mul(head_dim, I64(4))
    with cgutils.for_range(b, tokens) as loop:
        weight = splat(b, load(b, b.add(weights, b.mul(loop.index, I64(4))), 0, F32))
        line = b.add(b.add(values, at), b.mul(loop.index, stride))
        for chunk, total in enumerate(sums):
            value = load(b, line, chunk * _CHUNK_BYTES, FLOATS)
            b.store(multiply_add(b, weight, value, b.load(total)), total)
    for chunk, total in enumerate(sums):
        store(b, b.load(total), target, chunk * _CHUNK_BYTES)


def _five(body: Any, fourth: Any) -> Any:
    def make(context: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: list[Value]) -> Value:
            body(builder, list(arguments))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, fourth, types.int64), codegen

    return intrinsic(make)


#: ``(query, keys, head_dim, scale, out)``: the scores of TOKENS tokens, fp32.
dot_tokens = _five(_dot_tokens, types.float32)
#: ``(weights, values, tokens, head_dim, out)``: add ``weights[t] * values[t]`` to ``out`` [head_dim].
add_weighted = _five(_add_weighted, types.int64)
