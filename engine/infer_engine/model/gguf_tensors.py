"""The tensors of a GGUF file as fp32 numbers, one at a time, from the memory map."""

import functools
from collections.abc import Iterator
from math import prod

import gguf
import numpy as np
from numpy.typing import NDArray

from infer_engine.model.errors import ModelUnsupported
from infer_engine.model.gguf_architecture import ROPE_DIVISORS
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.layout import Dialect

_KEY_BYTES = 1 << 20
_PLAIN = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)


class GgufTensors:
    """Every type that the ``gguf`` package dequantises."""

    dialect: Dialect = "gguf"

    def __init__(self, source: GgufFile) -> None:
        self.label = source.path.name
        self.stem = source.path.stem
        self._source = source
        self._stored: NDArray[np.uint8] | None = None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors that are weights."""
        return {name: entry.shape for name, entry in self._source.tensors.items() if name != ROPE_DIVISORS}

    def check(self, name: str) -> None:
        """ModelUnsupported unless ``name`` can be read: of a known type, and all there."""
        self._stored_as(name)

    def read(self, name: str) -> NDArray[np.float32]:
        kind, size = self._stored_as(name)
        entry = self._source.tensors[name]
        if self._stored is None:
            self._stored = np.memmap(self._source.path, mode="r")
        rows = self._stored[entry.offset : entry.offset + size].reshape(*entry.shape[:-1], -1)
        # Scales of a damaged file may be infinite or not numbers; whoever asked looks at the result.
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(rows, kind)
        return np.ascontiguousarray(values, np.float32).reshape(entry.shape)

    def fingerprint(self) -> Iterator[bytes]:
        """Tells this file from others. Hashing gigabytes at each start is too slow, so it is the file's size,
        its time of modification and its first MiB (the metadata)."""
        status = self._source.path.stat()
        yield f"{status.st_size} {status.st_mtime_ns} ".encode()
        with self._source.path.open("rb") as file:
            yield file.read(_KEY_BYTES)

    def _stored_as(self, name: str) -> tuple[gguf.GGMLQuantizationType, int]:
        """The type of a tensor and its size in the file."""
        entry = self._source.tensors[name]
        try:
            kind = gguf.GGMLQuantizationType(entry.kind)
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError) as error:
            raise ModelUnsupported(f"{self.label}: tensor {name} has unknown type {entry.kind}") from error
        if not _can_dequantise(kind, block_bytes):
            raise ModelUnsupported(
                f"{self.label}: tensor {name} is quantised as {kind.name}, which is not supported"
            )
        if entry.shape[-1] % block:
            raise ModelUnsupported(f"{self.label}: rows of {name} are no multiple of {block} ({kind.name})")
        size = prod(entry.shape) // block * block_bytes
        if entry.offset + size > self._source.size_bytes:
            raise ModelUnsupported(f"{self.label} is incomplete: it ends within tensor {name}")
        return kind, size


@functools.cache
def _can_dequantise(kind: gguf.GGMLQuantizationType, block_bytes: int) -> bool:
    if kind in _PLAIN:
        return True
    try:
        with np.errstate(all="ignore"):
            gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
