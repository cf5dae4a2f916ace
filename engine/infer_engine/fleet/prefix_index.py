"""Which replicas probably hold which beginnings: an index over the prefix caches of the whole fleet. Pure.

The hashes are the replicas' own: a full block's stands for the salt (the tenant) and every token up to its
end, so a match is exact and never crosses tenants. What is known comes from what was sent where, what ended
there, and the evictions that replicas report. It may still be wrong (a block that was computed a moment too
late, a report under way), which costs a prefill and never an answer: the replica compares for itself.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import compress

from infer_engine.core.prefix import first_hash, hash_block

#: Hashes that are kept, over all replicas; those used least recently are forgotten first.
MOST_HASHES = 100_000
#: Blocks of one request that are hashed at most: 8,192 tokens in blocks of 16. What comes behind them is
#: taken to be new.
MOST_CHAIN_BLOCKS = 512
#: Ended lives are swept out of the index when there are so many of them, or as many as there are living.
SWEEP_FROM = 64


def extend_chain(chain: list[bytes], salt: str, tokens: Sequence[int], block_size: int) -> None:
    """Append the hashes of the full blocks of ``tokens`` that ``chain`` does not have yet, up to
    MOST_CHAIN_BLOCKS of them. ``chain`` must be of a beginning of the same tokens."""
    parent = chain[-1] if chain else first_hash(salt)
    for number in range(len(chain), min(len(tokens) // block_size, MOST_CHAIN_BLOCKS)):
        parent = hash_block(parent, tokens[number * block_size : (number + 1) * block_size])
        chain.append(parent)


class HeldPrefixes:
    """Holders of a hash are the bits of one integer, a bit for each life of a replica: what a thousand
    replicas hold is looked up in as many steps as there are blocks, and a life that ended is one bit less."""

    def __init__(self, most_hashes: int = MOST_HASHES) -> None:
        self._most = most_hashes
        #: Holders by hash, least recently used first.
        self._holders: OrderedDict[bytes, int] = OrderedDict()
        self._bits: dict[str, int] = {}
        self._names: list[str] = []
        self._living = 0
        #: Bits of ended lives that may still be set, and those that are not set anywhere.
        self._ended: list[int] = []
        self._spare: list[int] = []

    def __len__(self) -> int:
        return len(self._holders)

    def held(self, chain: Sequence[bytes]) -> dict[str, int]:
        """How many blocks from its beginning each replica holds, where that is any."""
        found: dict[str, int] = {}
        holding = self._living
        depth = 0
        for hash_ in chain:
            here = self._holders.get(hash_, 0) & holding
            if here != holding:
                if depth:
                    self._note(holding & ~here, depth, found)
                holding = here
                if not here:
                    break
            depth += 1
        if holding and depth:
            self._note(holding, depth, found)
        return found

    def _note(self, bits: int, depth: int, found: dict[str, int]) -> None:
        digits = map(int, reversed(f"{bits:b}"))
        found.update(dict.fromkeys(compress(self._names, digits), depth))

    def blocks_of(self, replica: str, chain: Sequence[bytes]) -> int:
        """How many blocks from its beginning this one holds."""
        number = self._bits.get(replica)
        if number is None:
            return 0
        bit = 1 << number
        for depth, hash_ in enumerate(chain):
            if not self._holders.get(hash_, 0) & bit:
                return depth
        return len(chain)

    def add(self, replica: str, chain: Sequence[bytes]) -> None:
        """It holds these from now on. The tail counts as used before the head: a head is of use without its
        tail and not the other way round."""
        bit = 1 << self._bit_of(replica)
        holders = self._holders
        for hash_ in reversed(chain):
            holders[hash_] = holders.get(hash_, 0) | bit
            holders.move_to_end(hash_)
        while len(holders) > self._most:
            holders.popitem(last=False)

    def remove(self, replica: str, hashes: Iterable[bytes]) -> None:
        """It holds these no longer."""
        number = self._bits.get(replica)
        if number is None:
            return
        bit = 1 << number
        for hash_ in hashes:
            holders = self._holders.get(hash_, 0)
            if not holders & bit:
                continue
            if holders == bit:
                del self._holders[hash_]
            else:
                self._holders[hash_] = holders ^ bit

    def forget(self, replica: str) -> None:
        """Its life ended: what it held is gone."""
        number = self._bits.pop(replica, None)
        if number is None:
            return
        self._living &= ~(1 << number)
        self._ended.append(number)

    def _bit_of(self, replica: str) -> int:
        number = self._bits.get(replica)
        if number is not None:
            return number
        if len(self._ended) >= max(SWEEP_FROM, len(self._bits)):
            self._sweep()
        if self._spare:
            number = self._spare.pop()
            self._names[number] = replica
        else:
            number = len(self._names)
            self._names.append(replica)
        self._bits[replica] = number
        self._living |= 1 << number
        return number

    def _sweep(self) -> None:
        """Take the bits of ended lives out, so that others can have them."""
        for hash_, holders in list(self._holders.items()):
            left = holders & self._living
            if not left:
                del self._holders[hash_]
            elif left != holders:
                self._holders[hash_] = left
        self._spare += self._ended
        self._ended.clear()
