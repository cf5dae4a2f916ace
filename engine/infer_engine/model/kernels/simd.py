"""What the processor's vectors are like, and the few vector operations that the micro-kernels are made of.

The kernels need no compiler on this machine: numba brings LLVM, and what numba's own loops would not make of
a matrix product (accumulators that stay in registers) is written here as LLVM instructions, one Python call
for each.
"""

import os
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

F32, F16, I16, I32, I64 = ir.FloatType(), ir.HalfType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)


_KINDS = ("none", "avx2", "avx512", "avx512vnni")


def _chosen() -> str:
    """What the processor has; INFER_ENGINE_SIMD names a smaller one. ValueError when it names none."""
    has = _detected()
    asked = os.environ.get("INFER_ENGINE_SIMD") or has
    if asked not in _KINDS:
        raise ValueError(f"INFER_ENGINE_SIMD is {asked[:40]!r}; allowed: {', '.join(_KINDS)}")
    return min(asked, has, key=_KINDS.index)


def _detected() -> str:
    """One of ``_KINDS``; with ``none`` the kernels cannot run."""
    features: dict[str, bool] = dict(llvm.get_host_cpu_features())
    if all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "f16c", "fma")):
        return "avx512vnni" if features.get("avx512vnni") else "avx512"
    return "avx2" if all(features.get(name) for name in ("avx2", "f16c", "fma")) else "none"


SIMD = _chosen()
#: 32-bit elements of a vector register.
WIDTH = 16 if SIMD.startswith("avx512") else 8
#: Rows of a weight matrix that are multiplied together: a panel is two registers wide.
PANEL = 2 * WIDTH
#: Rows of activations that one micro-kernel call takes at most; their sums fill the registers.
MOST_ROWS = 8 if WIDTH == 16 else 4

FLOATS = ir.VectorType(F32, WIDTH)
HALVES = ir.VectorType(F16, WIDTH)
INTS = ir.VectorType(I32, WIDTH)

Builder = Any
Value = Any


def at(b: Builder, address: Value, offset: int, kind: Any) -> Value:
    """A pointer to ``kind``, ``offset`` bytes after ``address`` (an integer)."""
    allow_any_address(b)
    return b.inttoptr(b.add(address, I64(offset)), kind.as_pointer())


def allow_any_address(b: Builder) -> None:
    """Let the function that is being built use addresses that are sums of integers.

    numba optimises a function again where another one has it, after LLVM has made machine code of it once
    and, on the way, cut addresses in two: a pointer and an offset, and which summand is the pointer is as it
    comes. Where that one is 0 (the first chunk of a row), the second time takes the access for one through
    the null pointer, which may do anything: it was thrown away. With this attribute null is an address like
    any other. Functions that these are inlined into get it with them."""
    # llvmlite's own list of attributes lacks it, LLVM's does not.
    set[str].add(b.function.attributes, "null_pointer_is_valid")


def load(b: Builder, address: Value, offset: int, kind: Any) -> Value:
    return b.load(at(b, address, offset, kind), align=2)


def store(b: Builder, value: Value, address: Value, offset: int) -> None:
    b.store(value, at(b, address, offset, value.type), align=4)


def constant(kind: Any, value: int) -> Value:
    """A vector with ``value`` in every lane."""
    return ir.Constant(kind, [value] * kind.count)


def zero(kind: Any) -> Value:
    return ir.Constant(kind, None)


def splat(b: Builder, scalar: Value) -> Value:
    """A vector with ``scalar`` in every lane."""
    kind = ir.VectorType(scalar.type, WIDTH)
    undefined = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(undefined, scalar, I32(0))
    return b.shuffle_vector(first, undefined, zero(INTS))


def multiply_add(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """``x * y + z``, rounded once."""
    return b.call(_function(b, f"llvm.fma.v{WIDTH}f32", FLOATS, [FLOATS] * 3), [x, y, z])


def dot_pairs(b: Builder, total: Value, x: Value, y: Value) -> Value:
    """Add to each 32-bit lane of ``total`` the products of the two 16-bit halves of that lane."""
    if SIMD == "avx512vnni":
        name = "llvm.x86.avx512.vpdpwssd.512"
        return b.call(_function(b, name, INTS, [INTS] * 3), [total, x, y])
    name = "llvm.x86.avx512.pmaddw.d.512" if WIDTH == 16 else "llvm.x86.avx2.pmadd.wd"
    shorts = ir.VectorType(I16, 2 * WIDTH)
    pairs = _function(b, name, INTS, [shorts] * 2)
    return b.add(total, b.call(pairs, [b.bitcast(x, shorts), b.bitcast(y, shorts)]))


def _function(b: Builder, name: str, result: Any, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(b.module, ir.FunctionType(result, arguments), name)
