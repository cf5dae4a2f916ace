"""The KV memory of one replica as fixed-size blocks with reference counts: who holds how many, never whose
they are."""

from collections.abc import Sequence


class PoolError(RuntimeError):
    """The pool was asked for something that only a bug asks for (a double free, a negative count). Nothing
    changed."""


class BlockPool:
    """``total`` blocks of ``block_size`` tokens, numbered from 0. ``free + cached + used == total``.

    The free list is a stack: a freed table is pushed head first, so its tail is reused before its head.
    Blocks kept for their content (``cached``: no holder, but findable by hash) will stand beside the stack in
    their own order.
    """

    def __init__(self, total: int, block_size: int) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(
                f"a pool needs blocks and tokens in them: total {total}, block_size {block_size}"
            )
        self.total = total
        self.block_size = block_size
        #: Holders of each block. Read only for others.
        self.ref_counts = [0] * total
        #: Blocks nobody holds; the last is handed out next. Read only for others.
        self.free_list = list(range(total - 1, -1, -1))
        #: Blocks somebody holds. Counted on its own, so that conservation can be checked against the other
        #: two.
        self.used = 0

    @property
    def free(self) -> int:
        return len(self.free_list)

    @property
    def cached(self) -> int:
        """Blocks without a holder whose content is kept: none as long as there is no prefix cache."""
        return 0

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
        ids = [self.free_list.pop() for _ in range(count)]
        for block in ids:
            self.ref_counts[block] = 1
        self.used += count
        return ids

    def share(self, ids: Sequence[int]) -> None:
        """One more holder for each of these held blocks."""
        self._check_held(ids)
        for block in ids:
            self.ref_counts[block] += 1

    def release(self, ids: Sequence[int]) -> int:
        """One holder less for each block of a table, given in table order. Returns how many nobody holds any
        more."""
        self._check_held(ids)
        released = 0
        for block in ids:
            self.ref_counts[block] -= 1
            if self.ref_counts[block] == 0:
                self.free_list.append(block)
                released += 1
        self.used -= released
        return released

    def _check_held(self, ids: Sequence[int]) -> None:
        if len(set(ids)) != len(ids):
            raise PoolError(f"a block is listed twice: {list(ids)}")
        for block in ids:
            if not 0 <= block < self.total:
                raise PoolError(f"there is no block {block}: the pool has {self.total}")
            if self.ref_counts[block] < 1:
                raise PoolError(f"nobody holds block {block}")
