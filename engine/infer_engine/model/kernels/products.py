"""Any number of rows times one panel of weights, cut into what the micro-kernels take."""

from typing import Any

from infer_engine.model.kernels.jit import compiled, compiled_closure
from infer_engine.model.kernels.micro import GROUP, group_bytes, grouped, out_of_line, plain
from infer_engine.model.kernels.simd import MOST_ROWS, PANEL

#: How a matrix is stored; the number is what the kernels dispatch on.
BITS_4, BITS_8, HALF = 4, 8, 16
_WIDE = MOST_ROWS == 8
_BYTES_4, _BYTES_8 = group_bytes(4), group_bytes(8)

_four_8, _four_4, _four_2, _four_1 = (grouped(4, rows) for rows in (MOST_ROWS, 4, 2, 1))
_eight_8, _eight_4, _eight_2, _eight_1 = (grouped(8, rows) for rows in (MOST_ROWS, 4, 2, 1))
_half_8, _half_4, _half_2, _half_1 = (plain(True, rows) for rows in (MOST_ROWS, 4, 2, 1))
_float_8, _float_4, _float_2, _float_1 = (plain(False, rows) for rows in (MOST_ROWS, 4, 2, 1))


def _cut(name: str, most: Any, four: Any, two: Any, one: Any) -> Any:
    """``(rows, weights, step, x, x_stride, scales, scales_stride, count, out, out_stride, add)`` for
    grouped."""

    @compiled_closure(name)
    def cut(
        rows: int,
        weights: int,
        x: int,
        x_stride: int,
        scales: int,
        scales_stride: int,
        groups: int,
        out: int,
        out_stride: int,
        add: Any,
    ) -> None:
        out_of_line()
        row = 0
        while row + MOST_ROWS <= rows:
            most(weights, x, x_stride, scales, scales_stride, groups, out, out_stride, add)
            x, scales, out = (
                x + MOST_ROWS * x_stride,
                scales + MOST_ROWS * scales_stride,
                out + MOST_ROWS * out_stride,
            )
            row += MOST_ROWS
        if _WIDE and row + 4 <= rows:
            four(weights, x, x_stride, scales, scales_stride, groups, out, out_stride, add)
            x, scales, out = x + 4 * x_stride, scales + 4 * scales_stride, out + 4 * out_stride
            row += 4
        if row + 2 <= rows:
            two(weights, x, x_stride, scales, scales_stride, groups, out, out_stride, add)
            x, scales, out = x + 2 * x_stride, scales + 2 * scales_stride, out + 2 * out_stride
            row += 2
        if row < rows:
            one(weights, x, x_stride, scales, scales_stride, groups, out, out_stride, add)

    return cut


def _cut_plain(name: str, most: Any, four: Any, two: Any, one: Any) -> Any:
    @compiled_closure(name)
    def cut(
        rows: int,
        weights: int,
        weights_stride: int,
        x: int,
        x_stride: int,
        count: int,
        out: int,
        out_stride: int,
        add: Any,
    ) -> None:
        out_of_line()
        row = 0
        while row + MOST_ROWS <= rows:
            most(weights, weights_stride, x, x_stride, count, out, out_stride, add)
            x, out = x + MOST_ROWS * x_stride, out + MOST_ROWS * out_stride
            row += MOST_ROWS
        if _WIDE and row + 4 <= rows:
            four(weights, weights_stride, x, x_stride, count, out, out_stride, add)
            x, out = x + 4 * x_stride, out + 4 * out_stride
            row += 4
        if row + 2 <= rows:
            two(weights, weights_stride, x, x_stride, count, out, out_stride, add)
            x, out = x + 2 * x_stride, out + 2 * out_stride
            row += 2
        if row < rows:
            one(weights, weights_stride, x, x_stride, count, out, out_stride, add)

    return cut


_four_bits = _cut("four_bits", _four_8, _four_4, _four_2, _four_1)
_eight_bits = _cut("eight_bits", _eight_8, _eight_4, _eight_2, _eight_1)
_halves = _cut_plain("halves", _half_8, _half_4, _half_2, _half_1)
#: ``(rows, weights, weights_stride, x, x_stride, count, out, out_stride, add)``: as ``micro.plain`` in fp32.
floats = _cut_plain("floats", _float_8, _float_4, _float_2, _float_1)


@compiled
def multiply_panel(
    kind: int,
    weights: int,
    panel: int,
    columns: int,
    row_values: Any,
    rows: int,
    out: int,
    out_stride: int,
    add: Any,
) -> None:
    """``rows`` rows, ``columns`` wide, times panel number ``panel`` of the matrix of ``kind`` at the address
    ``weights``: fp32 [rows, PANEL] at ``out``. ``row_values`` is (fp32 rows, 16-bit rows, their scales)."""
    out_of_line()
    values, shorts, scales = row_values
    groups = columns // GROUP
    x, x_stride = shorts.ctypes.data, shorts.strides[0]
    s, s_stride = scales.ctypes.data, scales.strides[0]
    if kind == BITS_4:
        panel_at = weights + panel * groups * _BYTES_4
        _four_bits(rows, panel_at, x, x_stride, s, s_stride, groups, out, out_stride, add)
    elif kind == BITS_8:
        panel_at = weights + panel * groups * _BYTES_8
        _eight_bits(rows, panel_at, x, x_stride, s, s_stride, groups, out, out_stride, add)
    else:
        panel_at = weights + panel * columns * PANEL * 2
        _halves(
            rows, panel_at, PANEL * 2, values.ctypes.data, values.strides[0], columns, out, out_stride, add
        )
