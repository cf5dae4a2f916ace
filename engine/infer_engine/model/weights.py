"""Weights as torch tensors: made fp32 once, in a cached file, and memory-mapped from then on.

The file is shared by all replica processes of a machine through the page cache. What is in it, and in which
order: ``layout.py``.
"""

import hashlib
import json
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray

from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.file_lock import file_lock
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.gguf_tensors import GgufTensors
from infer_engine.model.hf_directory import HfDirectory
from infer_engine.model.hf_tensors import HfTensors
from infer_engine.model.hyper_parameters import Architecture
from infer_engine.model.layout import Part, check_tensors, layout
from infer_engine.model.store import Progress, cache_dir

#: Raise when the layout changes: older files are then not used any more.
_FORMAT = "1"
_LOCK_TIMEOUT_S = 1800.0
_CRC_BYTES = 1 << 24
_ALIGNMENT = 64
#: Prepared files of other models: this many are kept, and those used within this time.
_KEPT_FILES = 4
_KEPT_S = 86_400.0

Weights = dict[str, torch.Tensor]
Tensors = GgufTensors | HfTensors


def load_weights(source: GgufFile | HfDirectory, architecture: Architecture, progress: Progress) -> Weights:
    """The weights of ``source``, memory-mapped and read-only by intent, from the cached file; it is made
    first when it is missing, of an older format, or damaged. Raises ModelUnsupported or
    ModelUnavailable."""
    tensors = (
        GgufTensors(source) if isinstance(source, GgufFile) else HfTensors(source, tied=architecture.tied)
    )
    parts = layout(architecture, tensors.dialect)
    check_tensors(tensors.label, parts, tensors.shapes(), architecture.family)
    for part in parts:
        for origin in part.origins:
            tensors.check(origin.name)
    try:
        path = cache_dir() / "weights" / f"{_content_key(tensors)}.safetensors"
        if not _is_intact(path, parts, progress):
            _make(path, tensors, parts, progress)
        os.utime(path)
        return safetensors.torch.load_file(path)
    except (OSError, TimeoutError, safetensors.SafetensorError) as error:
        raise ModelUnavailable(f"cannot keep the prepared weights in {cache_dir()}: {error}") from error


def _content_key(tensors: Tensors) -> str:
    """Names the cached file."""
    digest = hashlib.sha256(f"{_FORMAT} ".encode())
    for piece in tensors.fingerprint():
        digest.update(piece)
    return f"{tensors.stem[:64]}-{digest.hexdigest()[:24]}"


def _is_intact(path: Path, parts: list[Part], progress: Progress) -> bool:
    """The cached file is there, holds what it should, and its bytes are those that were written."""
    if not path.is_file():
        return False
    progress("checking the prepared weights", None)
    try:
        with safetensors.safe_open(path, "numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
            if metadata.get("format") != _FORMAT or set(file.keys()) != {part.name for part in parts}:
                return False
            if any(tuple(file.get_slice(part.name).get_shape()) != part.shape for part in parts):
                return False
    except safetensors.SafetensorError:
        return False
    with path.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        file.seek(8 + header_bytes)
        crc = 0
        while piece := file.read(_CRC_BYTES):
            crc = zlib.crc32(piece, crc)
    return metadata.get("crc32") == f"{crc:08x}"


def _make(path: Path, tensors: Tensors, parts: list[Part], progress: Progress) -> None:
    def waiting() -> None:
        progress("waiting for another process that prepares the weights", None)

    with file_lock(path.with_suffix(".lock"), _LOCK_TIMEOUT_S, waiting):
        if not _is_intact(path, parts, progress):
            _prune(path.parent)
            _write(path, tensors, parts, progress)


def _prune(directory: Path) -> None:
    """Remove prepared files that have not been used for long, so that the cache does not grow for ever."""
    by_last_use = sorted(directory.glob("*.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_last_use[_KEPT_FILES:]:
        if time.time() - old.stat().st_mtime > _KEPT_S:
            old.unlink(missing_ok=True)


def _write(path: Path, tensors: Tensors, parts: list[Part], progress: Progress) -> None:
    """Dequantise into ``path``, one tensor in memory at a time; it appears only when it is whole."""
    total = sum(4 * prod(part.shape) for part in parts)
    free = shutil.disk_usage(path.parent).free
    if free < total:
        raise ModelUnavailable(
            f"the prepared weights of {tensors.label} need {total:,} bytes in {path.parent}, where "
            f"{free:,} are free. Free some, or set INFER_CONSOLE_CACHE to a directory with more."
        )
    unfinished = path.with_suffix(".unfinished")
    try:
        with unfinished.open("wb") as out:
            header = _header(parts, crc=0)
            out.write(header)
            crc = done = 0
            for rows in _values(tensors, parts):
                out.write(rows.data)
                crc = zlib.crc32(rows.data, crc)
                done += rows.nbytes
                progress("preparing the weights", done / total)
            out.seek(0)
            out.write(_header(parts, crc))
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _header(parts: list[Part], crc: int) -> bytes:
    """A safetensors header: its length, then JSON. The checksum of the data has a fixed width, so that the
    header can be written again when it is known."""
    header: dict[str, Any] = {"__metadata__": {"format": _FORMAT, "crc32": f"{crc:08x}"}}
    start = 0
    for part in parts:
        end = start + 4 * prod(part.shape)
        header[part.name] = {"dtype": "F32", "shape": part.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)  # vector loads like aligned rows
    return struct.pack("<Q", len(text)) + text


def _values(tensors: Tensors, parts: list[Part]) -> Iterator[NDArray[np.float32]]:
    for part in parts:
        for origin in part.origins:
            values = tensors.read(origin.name)
            # A sum is finite only where all are, and needs no memory.
            with np.errstate(invalid="ignore"):
                finite = np.isfinite(values.sum(dtype=np.float64))
            if not finite:
                raise ModelUnsupported(
                    f"{tensors.label} is damaged: tensor {origin.name} holds what is no finite number"
                )
            yield origin.reorder(values)
