"""Weights as torch tensors: dequantised once into a cached fp32 file, memory-mapped from then on.

The file is shared by all replica processes of a machine through the page cache. It is laid out for the
forward pass: matrices that are applied to the same input are stacked. Query and key rows keep GGUF's order,
in which the two halves of a rotated pair are neighbours (``llama.py`` rotates them as complex numbers).

========================  ==========================================  ========================================
name                      shape (fp32)                                from GGUF
========================  ==========================================  ========================================
embedding                 [vocab, hidden]                             token_embd
layers.N.attention_norm   [hidden]                                    blk.N.attn_norm
layers.N.qkv              [(heads + 2 kv_heads) head_dim, hidden]     blk.N.attn_q, attn_k, attn_v
layers.N.output           [hidden, heads head_dim]                    blk.N.attn_output
layers.N.ffn_norm         [hidden]                                    blk.N.ffn_norm
layers.N.gate_up          [2 feed_forward, hidden]                    blk.N.ffn_gate, ffn_up
layers.N.down             [hidden, feed_forward]                      blk.N.ffn_down
norm                      [hidden]                                    output_norm
head                      [vocab, hidden]; absent when tied           output
========================  ==========================================  ========================================
"""

import hashlib
import json
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray

from infer_engine.model.architecture import Architecture
from infer_engine.model.errors import ModelUnavailable, ModelUnsupported
from infer_engine.model.file_lock import file_lock
from infer_engine.model.gguf_file import GgufFile
from infer_engine.model.store import Progress, cache_dir

#: Raise when the layout above changes: older files are then not used any more.
_FORMAT = "1"
_LOCK_TIMEOUT_S = 1800.0
_KEY_BYTES = 1 << 20
_CRC_BYTES = 1 << 24
_ALIGNMENT = 64
#: Prepared files of other models: this many are kept, and those used within this time.
_KEPT_FILES = 4
_KEPT_S = 86_400.0

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Part:
    """One tensor of the cached file and the GGUF tensors, stacked by rows, that it is made of."""

    name: str
    shape: tuple[int, ...]
    sources: tuple[tuple[str, tuple[int, ...]], ...]


def load_weights(source: GgufFile, architecture: Architecture, progress: Progress) -> Weights:
    """The weights of ``source``, memory-mapped and read-only by intent, from the cached file; it is made
    first when it is missing, of an older format, or damaged. Raises ModelUnsupported or
    ModelUnavailable."""
    parts = _layout(source, architecture)
    try:
        key = _content_key(source)
        path = cache_dir() / "weights" / f"{key}.safetensors"
        if not _is_intact(path, parts, progress):
            _make(path, source, parts, progress)
        os.utime(path)
        return safetensors.torch.load_file(path)
    except (OSError, TimeoutError, safetensors.SafetensorError) as error:
        raise ModelUnavailable(f"cannot keep the prepared weights in {cache_dir()}: {error}") from error


def _layout(source: GgufFile, architecture: Architecture) -> list[_Part]:
    """What the cached file holds; every tensor of the GGUF must be used, and have the shape that follows from
    the hyper-parameters."""
    a = architecture
    queries, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim

    def part(name: str, *sources: tuple[str, tuple[int, ...]]) -> _Part:
        rows = sum(shape[0] for _, shape in sources)
        return _Part(name, (rows, *sources[0][1][1:]), sources)

    parts = [part("embedding", ("token_embd.weight", (a.vocab_size, a.hidden)))]
    for n in range(a.layers):
        blk = f"blk.{n}"
        parts += [
            part(f"layers.{n}.attention_norm", (f"{blk}.attn_norm.weight", (a.hidden,))),
            part(
                f"layers.{n}.qkv",
                (f"{blk}.attn_q.weight", (queries, a.hidden)),
                (f"{blk}.attn_k.weight", (kv, a.hidden)),
                (f"{blk}.attn_v.weight", (kv, a.hidden)),
            ),
            part(f"layers.{n}.output", (f"{blk}.attn_output.weight", (a.hidden, queries))),
            part(f"layers.{n}.ffn_norm", (f"{blk}.ffn_norm.weight", (a.hidden,))),
            part(
                f"layers.{n}.gate_up",
                (f"{blk}.ffn_gate.weight", (a.feed_forward, a.hidden)),
                (f"{blk}.ffn_up.weight", (a.feed_forward, a.hidden)),
            ),
            part(f"layers.{n}.down", (f"{blk}.ffn_down.weight", (a.hidden, a.feed_forward))),
        ]
    parts.append(part("norm", ("output_norm.weight", (a.hidden,))))
    if not a.tied:
        parts.append(part("head", ("output.weight", (a.vocab_size, a.hidden))))
    _check_tensors(source, parts)
    return parts


def _check_tensors(source: GgufFile, parts: list[_Part]) -> None:
    expected = {name: shape for part in parts for name, shape in part.sources}
    for name, shape in expected.items():
        entry = source.tensors.get(name)
        if entry is None:
            raise ModelUnsupported(f"{source.path.name}: tensor {name} is missing")
        if entry.shape != shape:
            raise ModelUnsupported(f"{source.path.name}: tensor {name} is {entry.shape}, expected {shape}")
        _stored_bytes(source, name)
    unknown = sorted(source.tensors.keys() - expected.keys())
    if unknown:
        raise ModelUnsupported(
            f"{source.path.name}: tensor {unknown[0][:64]!r} is of no known use in a Llama"
        )


def _stored_bytes(source: GgufFile, name: str) -> tuple[gguf.GGMLQuantizationType, int]:
    """The type of a tensor and its size in the GGUF; refuses what cannot be dequantised or lies beyond the
    end."""
    entry = source.tensors[name]
    try:
        kind = gguf.GGMLQuantizationType(entry.kind)
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise ModelUnsupported(f"{source.path.name}: tensor {name} has unknown type {entry.kind}") from error
    if entry.shape[-1] % block:
        raise ModelUnsupported(f"{source.path.name}: rows of {name} are no multiple of {block} ({kind.name})")
    size = prod(entry.shape) // block * block_bytes
    if entry.offset + size > source.size_bytes:
        raise ModelUnsupported(f"{source.path.name} is incomplete: it ends within tensor {name}")
    return kind, size


def _content_key(source: GgufFile) -> str:
    """Names the cached file. Hashing gigabytes at each start is too slow, so it takes the file's size, its
    time of modification and its first MiB (the metadata)."""
    status = source.path.stat()
    digest = hashlib.sha256(f"{_FORMAT} {status.st_size} {status.st_mtime_ns} ".encode())
    with source.path.open("rb") as file:
        digest.update(file.read(_KEY_BYTES))
    return f"{source.path.stem[:64]}-{digest.hexdigest()[:24]}"


def _is_intact(path: Path, parts: list[_Part], progress: Progress) -> bool:
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


def _make(path: Path, source: GgufFile, parts: list[_Part], progress: Progress) -> None:
    def waiting() -> None:
        progress("waiting for another process that prepares the weights", None)

    with file_lock(path.with_suffix(".lock"), _LOCK_TIMEOUT_S, waiting):
        if not _is_intact(path, parts, progress):
            _prune(path.parent)
            _write(path, source, parts, progress)


def _prune(directory: Path) -> None:
    """Remove prepared files that have not been used for long, so that the cache does not grow for ever."""
    by_last_use = sorted(directory.glob("*.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_last_use[_KEPT_FILES:]:
        if time.time() - old.stat().st_mtime > _KEPT_S:
            old.unlink(missing_ok=True)


def _write(path: Path, source: GgufFile, parts: list[_Part], progress: Progress) -> None:
    """Dequantise into ``path``, one tensor in memory at a time; it appears only when it is whole."""
    total = sum(4 * prod(part.shape) for part in parts)
    free = shutil.disk_usage(path.parent).free
    if free < total:
        raise ModelUnavailable(
            f"the prepared weights of {source.path.name} need {total:,} bytes in {path.parent}, where "
            f"{free:,} are free. Free some, or set INFER_CONSOLE_CACHE to a directory with more."
        )
    unfinished = path.with_suffix(".unfinished")
    try:
        with unfinished.open("wb") as out:
            header = _header(parts, crc=0)
            out.write(header)
            crc = done = 0
            for rows in _dequantised(source, parts):
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


def _header(parts: list[_Part], crc: int) -> bytes:
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


def _dequantised(source: GgufFile, parts: list[_Part]) -> Iterator[NDArray[np.float32]]:
    stored = np.memmap(source.path, mode="r")
    for part in parts:
        for name, shape in part.sources:
            kind, size = _stored_bytes(source, name)
            offset = source.tensors[name].offset
            rows = stored[offset : offset + size].reshape(*shape[:-1], -1)
            try:
                values = gguf.quants.dequantize(rows, kind)
            except NotImplementedError as error:
                raise ModelUnsupported(
                    f"{source.path.name}: tensor {name} is quantised as {kind.name}, which is not supported"
                ) from error
            yield np.ascontiguousarray(values, np.float32).reshape(shape)
