"""Which block holds which tokens: the index of the prefix cache.

A full block is found by a hash that stands for everything up to its end: the hash of the block before it and
its own tokens. The chain begins at the salt, so requests of different salts never share a block. The hash
only finds a block; what decides is a comparison of its tokens.
"""

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from infer_engine.core.request import Request

#: Blocks that are compared for a part of a block, the newest first.
MOST_PARTS_TRIED = 8

HashBlock = Callable[[bytes, Sequence[int]], bytes]


def hash_block(parent: bytes, tokens: Sequence[int]) -> bytes:
    """16 bytes that are the same in every process."""
    return blake2b(parent + array("q", tokens).tobytes(), digest_size=16).digest()


def first_hash(salt: str) -> bytes:
    """Where the chain of a salt begins."""
    return blake2b(salt.encode(), digest_size=16).digest()


class Content(NamedTuple):
    """What a block holds: its tokens behind the prefix whose hash is ``parent``."""

    hash: bytes
    parent: bytes
    tokens: list[int]


class Hit(NamedTuple):
    """``blocks`` hold a request's beginning; the block ``part_of`` begins with the ``part_tokens`` tokens
    after it."""

    blocks: list[int]
    part_of: int = -1
    part_tokens: int = 0


class PrefixIndex:
    """Blocks by content and back. Of two blocks of equal content the first is kept. Knows nothing of holders;
    when not ``enabled`` it stays empty and finds nothing."""

    def __init__(self, block_size: int, *, enabled: bool, hash_block: HashBlock = hash_block) -> None:
        self.enabled = enabled
        #: Read only for others.
        self.blocks: dict[bytes, int] = {}
        self.contents: dict[int, Content] = {}
        #: Blocks by the hash of the block before them.
        self.behind: dict[bytes, dict[int, None]] = {}
        self._block_size = block_size
        self._hash_block = hash_block

    def __contains__(self, block: int) -> bool:
        return block in self.contents

    def find(self, request: Request) -> Hit:
        """What holds the longest known prefix of the request's tokens, its newest token left out: that one is
        always computed, or there would be nothing to sample from."""
        if not self.enabled:
            return Hit([])
        blocks = self._find_blocks(request)
        return Hit(blocks, *self._find_part(request, len(blocks)))

    def _find_part(self, request: Request, number: int) -> tuple[int, int]:
        """Of the request's block ``number``: a block that begins alike, and for how many tokens."""
        self._begin_chain(request)
        start = number * self._block_size
        wanted = request.tokens(start, min(self._block_size, request.total_tokens - 1 - start))
        best = (-1, 0)
        for block in islice(reversed(self.behind.get(request.hash_chain[number], {})), MOST_PARTS_TRIED):
            alike = _alike(self.contents[block].tokens, wanted)
            if alike > best[1]:
                best = (block, alike)
        return best

    def _find_blocks(self, request: Request) -> list[int]:
        found: list[int] = []
        size = self._block_size
        for number in range((request.total_tokens - 1) // size):
            block = self.blocks.get(self._hash_of(request, number))
            if block is None:
                break
            content = self.contents[block]
            if content.parent != request.hash_chain[number] or content.tokens != request.tokens(
                number * size, size
            ):
                break
            found.append(block)
        return found

    def add(self, request: Request, first: int, last: int) -> None:
        """The request's blocks ``first .. last`` of its table are full and computed: from now on they can be
        found."""
        if not self.enabled:
            return
        for number in range(first, last):
            hash_ = self._hash_of(request, number)
            block = request.block_table[number]
            if hash_ in self.blocks or block in self.contents:
                continue
            tokens = request.tokens(number * self._block_size, self._block_size)
            self.blocks[hash_] = block
            parent = request.hash_chain[number]
            self.contents[block] = Content(hash_, parent, tokens)
            self.behind.setdefault(parent, {})[block] = None

    def remove(self, block: int) -> bytes:
        """The block is about to hold something else; returns the hash by which nobody finds it any more."""
        content = self.contents.pop(block)
        del self.blocks[content.hash]
        siblings = self.behind[content.parent]
        del siblings[block]
        if not siblings:
            del self.behind[content.parent]
        return content.hash

    def _hash_of(self, request: Request, number: int) -> bytes:
        """Hash of the request's block ``number``, all tokens of which must be known. The chain is kept in
        the request: tokens are only ever added."""
        chain = request.hash_chain
        self._begin_chain(request)
        while len(chain) <= number + 1:
            start = (len(chain) - 1) * self._block_size
            chain.append(self._hash_block(chain[-1], request.tokens(start, self._block_size)))
        return chain[number + 1]

    def _begin_chain(self, request: Request) -> None:
        if not request.hash_chain:
            request.hash_chain.append(first_hash(request.cache_salt))


def _alike(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))
