"""Weights as the micro-kernels read them.

A matrix [rows, columns] is cut into panels of PANEL rows (the last one filled up with zeros), and stored in
one of three ways:

``BITS_4``, ``BITS_8``
    the file's own quantised groups of 32 columns, ``weight = scale * q + minimum`` with q unsigned: for each
    group of a panel PANEL scales, PANEL minima (fp16), and then 32-bit words, one for each row by turns.
    Bits ``bits * j`` and ``bits * j + 16`` of a word are the columns ``2j`` and ``2j + 1`` of those it has,
    so that a shift and a mask leave two neighbours as a pair of 16-bit integers. Formats without a minimum
    get the one that makes their q unsigned, a power of two times the scale: exact.
``HALF``
    fp16 [columns, PANEL] for each panel; what no other way keeps exactly is rounded to this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from infer_engine.model.kernels.micro import group_bytes
from infer_engine.model.kernels.products import BITS_4, BITS_8, HALF
from infer_engine.model.kernels.simd import PANEL

Kind = gguf.GGMLQuantizationType
Bytes = NDArray[np.uint8]
#: The rows of a matrix as the file has them: their type, and uint8 [rows, bytes of a row].
StoredRows = tuple[Kind, Bytes]


@dataclass(frozen=True, slots=True)
class Packed:
    """``kind`` is one of ``products.py``'s; ``data`` lies at an address that vectors like."""

    kind: int
    data: Bytes


@dataclass(frozen=True, slots=True)
class _Groups:
    """``q`` uint8 [rows, groups, 32] of ``bits`` bits; ``scales`` and ``minima`` fp16 [rows, groups]."""

    bits: int
    q: Bytes
    scales: NDArray[np.float16]
    minima: NDArray[np.float16]


def pack(
    stored: list[StoredRows] | None, dense: Callable[[], torch.Tensor], *, by_turns: bool = False
) -> Packed:
    """The matrix whose rows are ``stored``, one after another; None, or of kinds that have no exact packing,
    ``dense()`` (fp32 [rows, columns]) is rounded to fp16. ``by_turns``: the panels of the first and of the
    second half of the rows alternate."""
    groups = _exact(stored) if stored else None
    return _pack_dense(dense(), by_turns) if groups is None else _pack_groups(groups, by_turns)


def _exact(stored: list[StoredRows]) -> _Groups | None:
    parts: list[_Groups] = []
    for kind, rows in stored:
        unpack = _UNPACK.get(kind)
        with np.errstate(over="ignore"):  # it is looked for below
            part = unpack(rows) if unpack else None
        if part is None or not np.isfinite(part.minima).all():
            return None
        parts.append(part)
    if len({part.bits for part in parts}) != 1:
        return None
    q, scales, minima = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("q", "scales", "minima")
    )
    return _Groups(parts[0].bits, q, scales, minima)


def _blocks(rows: Bytes, size: int) -> Bytes:
    return rows.reshape(rows.shape[0], -1, size)


def _half(blocks: Bytes, at: int) -> NDArray[np.float16]:
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view(np.float16)[..., 0]


def _nibbles(packed: Bytes) -> Bytes:
    return np.concatenate((packed & np.uint8(15), packed >> np.uint8(4)), axis=-1)


def _q4_0(rows: Bytes) -> _Groups:
    blocks = _blocks(rows, 18)
    scales = _half(blocks, 0)
    return _Groups(4, _nibbles(blocks[:, :, 2:]), scales, scales * np.float16(-8))


def _q4_1(rows: Bytes) -> _Groups:
    blocks = _blocks(rows, 20)
    return _Groups(4, _nibbles(blocks[:, :, 4:]), _half(blocks, 0), _half(blocks, 2))


def _q8_0(rows: Bytes) -> _Groups:
    blocks = _blocks(rows, 34)
    scales = _half(blocks, 0)
    return _Groups(8, blocks[:, :, 2:] ^ np.uint8(128), scales, scales * np.float16(-128))


_UNPACK: dict[Kind, Callable[[Bytes], _Groups]] = {Kind.Q4_0: _q4_0, Kind.Q4_1: _q4_1, Kind.Q8_0: _q8_0}


def _pack_groups(groups: _Groups, by_turns: bool) -> Packed:
    bits, (rows, count, _) = groups.bits, groups.q.shape
    pairs = groups.q.reshape(rows, count, bits, 16 // bits, 2)
    words = np.zeros((rows, count, bits), np.uint32)
    for j in range(16 // bits):
        for half in range(2):
            words |= pairs[..., j, half].astype(np.uint32) << np.uint32(bits * j + 16 * half)
    numbers = _padded(rows, by_turns)
    data = _aligned(len(numbers) * count * group_bytes(bits) // PANEL)
    panels = data.reshape(-1, count, group_bytes(bits))
    for offset, values in ((0, groups.scales), (2 * PANEL, groups.minima)):
        laid = _by_panel(values[..., None], numbers)
        panels[:, :, offset : offset + 2 * PANEL] = laid.view(np.uint8).reshape(len(panels), count, -1)
    laid = _by_panel(words, numbers)
    panels[:, :, 4 * PANEL :] = laid.view(np.uint8).reshape(len(panels), count, -1)
    return Packed({4: BITS_4, 8: BITS_8}[bits], data)


def _pack_dense(weight: torch.Tensor, by_turns: bool) -> Packed:
    half = weight.to(torch.float16).numpy()
    laid = _by_panel(half[..., None], _padded(len(half), by_turns))
    data = _aligned(laid.nbytes)
    data[:] = laid.reshape(-1).view(np.uint8)
    return Packed(HALF, data)


def _padded(rows: int, by_turns: bool) -> NDArray[np.int64]:
    """Which row lies where in the panels; ``rows`` itself stands for a row of zeros."""
    parts = np.split(np.arange(rows), 2) if by_turns else [np.arange(rows)]
    padding = -len(parts[0]) % PANEL
    padded = [np.concatenate((part, np.full(padding, rows))).reshape(-1, PANEL) for part in parts]
    return np.stack(padded, axis=1).reshape(-1)


def _by_panel(values: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[Any]:
    """``values`` [rows, groups, words] as [panels, groups, words, PANEL]."""
    if len(numbers) > len(values):
        values = np.concatenate((values, np.zeros((1, *values.shape[1:]), values.dtype)))
    picked = values[numbers].reshape(-1, PANEL, *values.shape[1:])
    return np.ascontiguousarray(picked.transpose(0, 2, 3, 1))


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
