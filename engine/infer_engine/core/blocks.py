"""The KV memory of one replica as fixed-size blocks with reference counts: who holds how many, never whose
they are."""

from collections import OrderedDict
from collections.abc import Sequence

from infer_engine.core.prefix import PrefixIndex


class PoolError(RuntimeError):
    """The pool was asked for something that only a bug asks for (a double free, a negative count). Nothing
    changed."""


class BlockPool:
    """``total`` blocks of ``block_size`` tokens, numbered from 0. ``free + cached + used == total``.

    The free list is a stack: a freed table is pushed head first, so its tail is reused before its head.
    Blocks without a holder that the prefix index still finds are ``cached``. They are reused only when no
    other is left: first those that were let go first, and of one table the tail before the head, since a head
    is of use without its tail and not the other way round.
    """

    def __init__(self, total: int, block_size: int, *, prefix_cache: bool = False) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(
                f"a pool needs blocks and tokens in them: total {total}, block_size {block_size}"
            )
        self.total = total
        self.block_size = block_size
        #: Holders of each block. Read only for others.
        self.ref_counts = [0] * total
        #: Blocks nobody holds or finds; the last is handed out next. Read only for others.
        self.free_list = list(range(total - 1, -1, -1))
        #: Blocks nobody holds, kept for their content, and when they were let go; the first is handed out
        #: next. Read only for others.
        self.cached_blocks: OrderedDict[int, float] = OrderedDict()
        #: The caller's clock, as of the step that is planned or committed: what is let go is let go now.
        self.now_s = 0.0
        self.index = PrefixIndex(block_size, enabled=prefix_cache)
        #: Blocks somebody holds. Counted on its own, so that conservation can be checked against the other
        #: two.
        self.used = 0
        #: Cached blocks reused since ``take_evicted`` was called last.
        self._evicted: list[int] = []
        #: What they were found by.
        self._evicted_hashes: list[bytes] = []

    @property
    def free(self) -> int:
        return len(self.free_list)

    @property
    def cached(self) -> int:
        """Blocks without a holder whose content is kept."""
        return len(self.cached_blocks)

    @property
    def available(self) -> int:
        """How many blocks ``allocate`` could give now."""
        return self.free + self.cached

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int] | None:
        """``count`` block ids, each held once, or None (and nothing taken) when there are not that many."""
        if count < 0:
            raise PoolError(f"cannot allocate {count} blocks")
        if count > self.available:
            return None
        ids = [self.free_list.pop() if self.free_list else self._evict() for _ in range(count)]
        for block in ids:
            self.ref_counts[block] = 1
        self.used += count
        return ids

    def _evict(self) -> int:
        block, _ = self.cached_blocks.popitem(last=False)
        self._evicted_hashes.append(self.index.remove(block))
        self._evicted.append(block)
        return block

    def take_evicted(self) -> list[int]:
        """The cached blocks that were reused since the last call."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def take_evicted_hashes(self) -> list[bytes]:
        """What the blocks that were reused since the last call were found by."""
        hashes, self._evicted_hashes = self._evicted_hashes, []
        return hashes

    def idle(self, ids: Sequence[int]) -> int:
        """How many of these cached or held blocks have no holder."""
        return sum(self.ref_counts[block] == 0 for block in ids)

    def allocate_behind(self, hit: Sequence[int], count: int) -> list[int] | None:
        """A table of the ``hit`` blocks and ``count`` more, or None (and nothing taken) when there are not
        that many. The hit is held first, so that what is allocated behind it cannot evict it."""
        if self.idle(hit) + count > self.available:
            return None
        self.share(hit)
        rest = self.allocate(count)
        if rest is None:
            raise PoolError(f"{count} blocks were counted and are not there")
        return [*hit, *rest]

    def is_writable(self, block: int) -> bool:
        """Whether its one holder may write to it: nobody else holds it, nobody finds it."""
        return self.ref_counts[block] == 1 and block not in self.index

    def share(self, ids: Sequence[int]) -> None:
        """One more holder for each of these held or cached blocks."""
        self._check(ids, cached_too=True)
        for block in ids:
            if self.ref_counts[block] == 0:
                del self.cached_blocks[block]
                self.used += 1
            self.ref_counts[block] += 1

    def release(self, ids: Sequence[int]) -> int:
        """One holder less for each block of a table, given in table order. Returns how many nobody holds any
        more."""
        self._check(ids)
        let_go: list[int] = []
        for block in ids:
            self.ref_counts[block] -= 1
            if self.ref_counts[block] == 0:
                let_go.append(block)
        self.free_list += [block for block in let_go if block not in self.index]
        for block in reversed(let_go):
            if block in self.index:
                self.cached_blocks[block] = self.now_s
        self.used -= len(let_go)
        return len(let_go)

    def _check(self, ids: Sequence[int], *, cached_too: bool = False) -> None:
        if len(set(ids)) != len(ids):
            raise PoolError(f"a block is listed twice: {list(ids)}")
        for block in ids:
            if not 0 <= block < self.total:
                raise PoolError(f"there is no block {block}: the pool has {self.total}")
            if self.ref_counts[block] < 1 and not (cached_too and block in self.cached_blocks):
                raise PoolError(f"nobody holds block {block}")
