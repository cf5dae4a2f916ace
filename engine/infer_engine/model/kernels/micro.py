"""The micro-kernels: a few rows of activations times one panel of weights, with all sums in registers.

Every row's sum is made in the same order however many rows are multiplied together, so that a sequence's
numbers do not depend, to the bit, on who else is in the batch. All arguments are integers: addresses and
strides in bytes, and counts.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from infer_engine.model.kernels.simd import (
    F32,
    FLOATS,
    HALVES,
    I32,
    I64,
    INTS,
    PANEL,
    WIDTH,
    Builder,
    Value,
    constant,
    dot_pairs,
    load,
    multiply_add,
    splat,
    store,
    zero,
)

#: Weights that share a scale and a minimum, along a row.
GROUP = 32
#: Registers of a panel.
_HALVES = range(2)


def group_bytes(bits: int) -> int:
    """A group of a panel: scales and minima (fp16), then the quantised weights."""
    return PANEL * (2 + 2 + GROUP * bits // 8)


def grouped(bits: int, rows: int) -> Any:
    """``(weights, x, x_stride, scales, scales_stride, groups, out, out_stride, add)``: multiply ``rows``
    rows of 16-bit activations by a panel of weights of ``bits`` bits (``packing.py`` describes both), and
    store, or with ``add`` add, fp32 [rows, PANEL]."""
    words, size = bits, group_bytes(bits)
    pairs_per_word = 16 // bits

    def dot_products(b: Builder, weights: Value, x: list[Value]) -> list[list[Value]]:
        """The integer dot products of one group: [rows][register of the panel]."""
        mask = constant(INTS, 0x000F000F if bits == 4 else 0x00FF00FF)
        totals = [[zero(INTS) for _ in _HALVES] for _ in x]
        for word in range(words):
            offset = PANEL * 4 * (1 + word)
            packed = [load(b, weights, offset + 4 * WIDTH * half, INTS) for half in _HALVES]
            for pair in range(pairs_per_word):
                shift = constant(INTS, bits * pair)
                pairs = [b.and_(b.lshr(one, shift), mask) for one in packed]
                for row, address in enumerate(x):
                    both = splat(b, load(b, address, 4 * (word * pairs_per_word + pair), I32))
                    for half in _HALVES:
                        totals[row][half] = dot_pairs(b, totals[row][half], pairs[half], both)
        return totals

    def body(b: Builder, arguments: list[Value]) -> None:
        weights, x, x_stride, scales, scales_stride, groups, out, out_stride, add = arguments
        sums = _sums(b, rows)
        with cgutils.for_range(b, groups) as loop:
            group = b.add(weights, b.mul(loop.index, I64(size)))
            totals = dot_products(b, group, _rows(b, x, x_stride, loop.index, 2 * GROUP, rows))
            scale = [b.fpext(load(b, group, 2 * WIDTH * half, HALVES), FLOATS) for half in _HALVES]
            minimum = [
                b.fpext(load(b, group, 2 * (PANEL + WIDTH * half), HALVES), FLOATS) for half in _HALVES
            ]
            for row, address in enumerate(_rows(b, scales, scales_stride, loop.index, 8, rows)):
                x_scale, x_sum = splat(b, load(b, address, 0, F32)), splat(b, load(b, address, 4, F32))
                for half in _HALVES:
                    product = b.fmul(b.sitofp(totals[row][half], FLOATS), x_scale)
                    so_far = multiply_add(b, product, scale[half], b.load(sums[row][half]))
                    b.store(multiply_add(b, minimum[half], x_sum, so_far), sums[row][half])
        _store_sums(b, sums, out, out_stride, add)

    return _intrinsic(9, body)


def plain(half_precision: bool, rows: int) -> Any:
    """``(weights, weights_stride, x, x_stride, count, out, out_stride, add)``: multiply ``rows`` rows of
    ``count`` fp32 activations by [count, PANEL] weights in fp16 or fp32; fp32 [rows, PANEL]."""
    kind, size = (HALVES, 2) if half_precision else (FLOATS, 4)

    def body(b: Builder, arguments: list[Value]) -> None:
        weights, weights_stride, x, x_stride, count, out, out_stride, add = arguments
        sums = _sums(b, rows)
        with cgutils.for_range(b, count) as loop:
            line = b.add(weights, b.mul(loop.index, weights_stride))
            w = [load(b, line, size * WIDTH * half, kind) for half in _HALVES]
            if half_precision:
                w = [b.fpext(one, FLOATS) for one in w]
            for row, address in enumerate(_rows(b, x, x_stride, loop.index, 4, rows)):
                value = splat(b, load(b, address, 0, F32))
                for half in _HALVES:
                    so_far = b.load(sums[row][half])
                    b.store(multiply_add(b, value, w[half], so_far), sums[row][half])
        _store_sums(b, sums, out, out_stride, add)

    return _intrinsic(8, body)


def _sums(b: Builder, rows: int) -> list[list[Value]]:
    """On the stack, from where LLVM takes them into registers."""
    return [[cgutils.alloca_once_value(b, zero(FLOATS)) for _ in _HALVES] for _ in range(rows)]


def _rows(b: Builder, base: Value, stride: Value, index: Value, size: int, rows: int) -> list[Value]:
    """The addresses of element ``index`` of each row."""
    first = b.add(base, b.mul(index, I64(size)))
    return [b.add(first, b.mul(stride, I64(row))) for row in range(rows)]


def _store_sums(b: Builder, sums: list[list[Value]], out: Value, out_stride: Value, add: Value) -> None:
    adds = b.icmp_signed("!=", add, I64(0))
    for row, halves in enumerate(sums):
        address = b.add(out, b.mul(out_stride, I64(row)))
        for half, total in enumerate(halves):
            before = b.select(adds, load(b, address, 4 * WIDTH * half, FLOATS), zero(FLOATS))
            store(b, b.fadd(b.load(total), before), address, 4 * WIDTH * half)


def _intrinsic(count: int, body: Any) -> Any:
    """A numba function of ``count`` integers that returns nothing, made of ``body(builder, arguments)``."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: list[Value]) -> Value:
        # Fixed names for a variable number of arguments: numba takes the first from the signature.
        body(builder, list(arguments))
        return context.get_dummy_value()

    signature = types.void(*[types.int64] * count)
    if count == 9:

        def nine(context: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any) -> Any:
            return signature, codegen

        return intrinsic(nine)

    def eight(context: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
        return signature, codegen

    return intrinsic(eight)


def _out_of_line(context: Any) -> Any:
    def codegen(context: Any, builder: Builder, signature: Any, arguments: list[Value]) -> Value:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


#: Called first in a function that is large and called from several places: LLVM then compiles it once.
out_of_line: Any = intrinsic(_out_of_line)
