"""Whether a file of Zstandard frames ends where a frame does: a decompressor that is given half a frame at
the end says nothing."""

from typing import BinaryIO

import zstandard

_MAGIC_BYTES = 4
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
#: A frame's header is not longer.
_HEADER_BYTES = 18
_BLOCK_HEAD_BYTES = 3
_CHECKSUM_BYTES = 4
_RLE = 1


def ends_with_a_frame(file: BinaryIO) -> bool:
    """Walks over the heads of all frames and blocks. True where that cannot be told: of a pipe."""
    if not file.seekable():
        return True
    at, end = 0, file.seek(0, 2)
    while at < end:
        at = _after_frame(file, at)
    return at == end


def _after_frame(file: BinaryIO, at: int) -> int:
    """Where the frame at ``at`` is to end; beyond the file's end where its heads are not all there."""
    head = _read(file, at, _HEADER_BYTES)
    beyond = file.seek(0, 2) + 1
    if int.from_bytes(head[:_MAGIC_BYTES], "little") in _SKIPPABLE:
        size = head[_MAGIC_BYTES : 2 * _MAGIC_BYTES]
        return at + 2 * _MAGIC_BYTES + int.from_bytes(size, "little") if len(size) == _MAGIC_BYTES else beyond
    try:
        at += zstandard.frame_header_size(head)
        checksum = _CHECKSUM_BYTES if zstandard.get_frame_parameters(head).has_checksum else 0
    except zstandard.ZstdError:
        return beyond
    while True:
        block = _read(file, at, _BLOCK_HEAD_BYTES)
        if len(block) < _BLOCK_HEAD_BYTES:
            return beyond
        bits = int.from_bytes(block, "little")
        is_last, kind, size = bits & 1, bits >> 1 & 3, bits >> 3
        at += _BLOCK_HEAD_BYTES + (1 if kind == _RLE else size)
        if is_last:
            return at + checksum


def _read(file: BinaryIO, at: int, count: int) -> bytes:
    file.seek(at)
    return file.read(count)
