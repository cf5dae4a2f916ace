"""Reads a GGUF file: its metadata, and where each tensor lies.

The file is untrusted. Every length is checked against the file's size before anything is read or allocated by
it, and whatever is wrong ends in ModelUnsupported. (The ``gguf`` package's own reader trusts lengths, and is
slow for a large vocabulary.)
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_KEYS = 4096
_MAX_TENSORS = 100_000
_MAX_NAME_BYTES = 1024
_MAX_DIMENSIONS = 4

#: GGUF scalar value types by number: struct format and size in bytes.
_SCALARS = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
_STRING, _ARRAY = 8, 9

Value = TypeVar("Value", int, float, str, bool)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """``shape`` is row-major (the last dimension is contiguous); ``kind`` is the ggml type's number;
    ``offset`` is in bytes from the file's start."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path
    size_bytes: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]

    def get(self, key: str, kind: type[Value], default: Value | None = None) -> Value:
        """The value of ``key``; ModelUnsupported when it is missing without a default, or of another type."""
        value = self.metadata.get(key, default)
        if value is None:
            raise ModelUnsupported(f"{self.path.name}: metadata key {key} is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelUnsupported(
                f"{self.path.name}: metadata key {key} should be {kind.__name__}, not {type(value).__name__}"
            )
        return value

    def strings(self, key: str) -> list[str]:
        return self._list(key, str)

    def integers(self, key: str) -> list[int]:
        return self._list(key, int)

    def numbers(self, key: str) -> list[float]:
        return self._list(key, float)

    def _list(self, key: str, kind: type[Any]) -> list[Any]:
        value = self.metadata.get(key)
        if not isinstance(value, list) or (value and type(value[0]) is not kind):
            raise ModelUnsupported(
                f"{self.path.name}: metadata key {key} should be a list of {kind.__name__}"
            )
        return value


def read_gguf(path: Path) -> GgufFile:
    """Read the header of ``path``. Raises ModelUnavailable when it cannot be opened, ModelUnsupported when it
    is no GGUF file or a damaged one."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Parser(path, data).parse()
    except OSError as error:
        raise ModelUnavailable(f"cannot read model file {path}: {error.strerror}") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise ModelUnsupported(f"{path.name} is not a GGUF file: {error}") from error


class _Parser:
    """A cursor over the mapped file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 0

    def parse(self) -> GgufFile:
        if self._take(4) != MAGIC:
            raise ModelUnsupported(f"{self._path.name} is not a GGUF file (it does not begin with 'GGUF')")
        version = self._scalar(4)
        if version not in _VERSIONS:
            raise ModelUnsupported(
                f"{self._path.name}: GGUF version {version} is not supported "
                f"(supported: {', '.join(map(str, _VERSIONS))}, little-endian)"
            )
        tensor_count = self._count("tensor count", _MAX_TENSORS)
        key_count = self._count("metadata key count", _MAX_KEYS)
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._string(_MAX_NAME_BYTES)
            metadata[key] = self._value(self._scalar(4))
        entries = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 65536:
            raise self._damaged("general.alignment is out of bounds")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorEntry] = {}
        for name, shape, kind, offset in entries:
            if name in tensors:
                raise self._damaged("a tensor is listed twice")
            if start + offset > self._size:
                raise self._damaged("a tensor begins beyond the end of the file")
            tensors[name] = TensorEntry(name, shape, kind, start + offset)
        return GgufFile(self._path, self._size, metadata, tensors)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string(_MAX_NAME_BYTES)
        dimensions: int = self._scalar(4)
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self._damaged("a tensor has an impossible number of dimensions")
        shape = tuple(self._scalar(10) for _ in range(dimensions))[::-1]
        # No type packs more than 8 elements into a byte.
        if not 1 <= prod(shape) <= 8 * self._size:
            raise self._damaged("a tensor is larger than the file")
        return name, shape, self._scalar(4), self._scalar(10)

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._scalar(kind)
        if kind == _STRING:
            return self._string(self._size)
        if kind != _ARRAY:
            raise self._damaged(f"unknown value type {kind}")
        item_kind, length = self._scalar(4), self._scalar(10)
        if item_kind in _SCALARS:
            code, width = _SCALARS[item_kind]
            return list(struct.unpack(f"<{length}{code}", self._take(length * width)))
        if item_kind != _STRING:
            raise self._damaged(f"arrays of value type {item_kind} are not supported")
        if length * 8 > self._size - self._at:
            raise self._damaged("an array is longer than the file")
        return [self._string(self._size) for _ in range(length)]

    def _scalar(self, kind: int) -> Any:
        code, width = _SCALARS[kind]
        return struct.unpack(f"<{code}", self._take(width))[0]

    def _string(self, most_bytes: int) -> str:
        length: int = self._scalar(10)
        if length > most_bytes:
            raise self._damaged("a string is longer than allowed")
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise self._damaged("a string is not UTF-8") from error

    def _count(self, what: str, most: int) -> int:
        count: int = self._scalar(10)
        if count > most:
            raise self._damaged(f"{what} {count} is over {most}")
        return count

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > self._size:
            raise self._damaged("it ends in the middle of its header (an incomplete download?)")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _damaged(self, why: str) -> ModelUnsupported:
        return ModelUnsupported(f"{self._path.name} is damaged at byte {self._at}: {why}")
