"""What is done to one row of activations, or one head of it, between the matrix products."""

from typing import Any

import numpy as np

from infer_engine.model.kernels.jit import compiled_inline, compiled_loosely
from infer_engine.model.kernels.micro import GROUP

_LOG2_E = np.float32(1.44269504)
_LN_2_HIGH, _LN_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_SHORT_MOST = np.float32(32767.0)
ONE, HALF, ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)


@compiled_inline
def exponential(x: Any) -> Any:
    """e to the ``x``, fp32, within 2 units in the last place; what is under -87 gives about 1e-38. (A call of
    libm's could not be made a vector.)"""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    power = np.floor(x * _LOG2_E + HALF)
    rest = x - power * _LN_2_HIGH - power * _LN_2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * rest + np.float32(1.3981999507e-3)
    p = p * rest + np.float32(8.3334519073e-3)
    p = p * rest + np.float32(4.1665795894e-2)
    p = p * rest + np.float32(1.6666665459e-1)
    p = p * rest + np.float32(5.0000001201e-1)
    p = p * rest * rest + rest + ONE
    return p * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled_loosely
def norm(x: Any, weight: Any, epsilon: Any, out: Any) -> None:
    """``out`` = ``x`` over its root mean square, times ``weight``; all fp32 [n]."""
    total = ZERO
    for n in range(weight.size):
        total += x[n] * x[n]
    scale = ONE / np.sqrt(total / np.float32(weight.size) + epsilon)
    for n in range(weight.size):
        out[n] = x[n] * scale * weight[n]


@compiled_loosely
def quantise(x: Any, count: int, out: Any, scales: Any) -> None:
    """``x`` fp32 [count] as 16-bit integers with a scale for each group; ``scales`` fp32 [groups, 2] takes
    the scale and the sum of the group. The error is at most 1/65534 of the group's largest value."""
    for group in range(count // GROUP):
        first = group * GROUP
        most = ZERO
        for n in range(first, first + GROUP):
            most = max(most, abs(x[n]))
        inverse = _SHORT_MOST / most if most > ZERO else ZERO
        # Of the rounded values: then the products' error is that of the rounding times the weights, not times
        # their larger unsigned parts.
        total = np.int32(0)
        for n in range(first, first + GROUP):
            rounded = np.int32(np.rint(x[n] * inverse))
            out[n] = np.int16(rounded)
            total += rounded
        scales[group, 0] = most / _SHORT_MOST
        scales[group, 1] = np.float32(total) * scales[group, 0]


@compiled_loosely
def gated(gate: Any, up: Any, count: int, out: Any) -> None:
    """``out`` = silu(``gate``) * ``up``; all fp32 [count]."""
    for n in range(count):
        out[n] = gate[n] / (ONE + exponential(-gate[n])) * up[n]


@compiled_loosely
def rotate(head: Any, rotation: Any) -> None:
    """Turn each pair of neighbours in ``head`` [head_dim] by the complex number of ``rotation``
    [head_dim]."""
    for n in range(0, head.size, 2):
        real, imaginary = head[n], head[n + 1]
        head[n] = real * rotation[n] - imaginary * rotation[n + 1]
        head[n + 1] = real * rotation[n + 1] + imaginary * rotation[n]
