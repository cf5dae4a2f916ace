"""The block pool against a model made of a dict."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from infer_engine.core.blocks import BlockPool, PoolError
from infer_engine.core.request import Request
from simulation.core_modules import Core


class PoolMachine(RuleBasedStateMachine):
    """Tables of block ids are taken, shared, given back and kept for their content; ``holders`` and ``kept``
    are what the pool must know."""

    @initialize(total=st.integers(1, 12), block_size=st.integers(1, 16))
    def make(self, total: int, block_size: int) -> None:
        self.pool = BlockPool(total, block_size, prefix_cache=True)
        self.kept: set[int] = set()
        self.contents = 0
        self.holders = dict.fromkeys(range(total), 0)
        self.tables: list[list[int]] = []

    @rule(count=st.integers(0, 14))
    def allocate(self, count: int) -> None:
        free = {block for block, holders in self.holders.items() if holders == 0}
        ids = self.pool.allocate(count)
        evicted = self.pool.take_evicted()
        assert len(evicted) == (0 if count > len(free) else max(0, count - len(free - self.kept)))
        assert set(evicted) <= free & self.kept
        self.kept -= set(evicted)
        if count > len(free):
            assert ids is None
            return
        assert ids is not None
        assert len(ids) == len(set(ids)) == count
        assert set(ids) <= free
        for block in ids:
            self.holders[block] = 1
        self.tables.append(ids)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        head = table[: data.draw(st.integers(0, len(table)))]
        self.pool.share(head)
        for block in head:
            self.holders[block] += 1
        self.tables.append(head)

    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        held = [block for block, holders in self.holders.items() if holders and block not in self.kept]
        if not held:
            return
        block = data.draw(st.sampled_from(held))
        self.contents += 1
        tokens = [self.contents] * self.pool.block_size
        request = Request(id="r", prompt=tokens, max_tokens=1, arrival_s=0.0, block_table=[block])
        self.pool.index.add(request, 0, 1)
        self.kept.add(block)
        same = Request(id="s", prompt=[*tokens, 0], max_tokens=1, arrival_s=0.0)
        assert self.pool.index.find(same).blocks == [block]
        assert not self.pool.is_writable(block)

    @rule(data=st.data())
    def share_cached(self, data: st.DataObject) -> None:
        cached = [block for block in self.kept if self.holders[block] == 0]
        if not cached:
            return
        block = data.draw(st.sampled_from(sorted(cached)))
        self.pool.share([block])
        self.holders[block] = 1
        self.tables.append([block])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        for block in table:
            self.holders[block] -= 1
        assert self.pool.release(table) == sum(self.holders[block] == 0 for block in table)

    @rule(data=st.data())
    def misuse(self, data: st.DataObject) -> None:
        free = [block for block, holders in self.holders.items() if holders == 0]
        held = [block for block, holders in self.holders.items() if holders]
        wrong = [[-1], [self.pool.total], *([block] for block in free), *([block, block] for block in held)]
        # What is right in front of what is wrong must not be done either.
        ids = data.draw(st.sampled_from(wrong))
        cached = bool(set(ids) & self.kept) and len(ids) == 1
        misused = (
            self.pool.release if cached else data.draw(st.sampled_from([self.pool.release, self.pool.share]))
        )
        with pytest.raises(PoolError):
            misused(held[:2] + ids)

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "pool"):
            return
        held = sum(holders > 0 for holders in self.holders.values())
        assert self.pool.ref_counts == list(self.holders.values())
        cached = {block for block in self.kept if self.holders[block] == 0}
        free = [block for block, holders in self.holders.items() if holders == 0 and block not in cached]
        assert (self.pool.used, self.pool.cached, self.pool.free) == (held, len(cached), len(free))
        assert self.pool.available == self.pool.total - held
        assert sorted(self.pool.free_list) == free
        assert set(self.pool.cached_blocks) == cached
        assert self.pool.index.contents.keys() == self.kept


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, database=None)


def test_a_freed_tail_is_reused_before_its_head(core: Core) -> None:
    pool = core.BlockPool(8, 4)
    table = pool.allocate(3)
    pool.release(table)
    assert pool.allocate(1) == [table[-1]]
    assert pool.allocate(2) == [table[1], table[0]]


def test_a_negative_count_is_refused_and_changes_nothing(core: Core) -> None:
    pool = core.BlockPool(4, 4)
    with pytest.raises(core.PoolError):
        pool.allocate(-1)
    assert (pool.free, pool.used) == (4, 0)
    assert pool.allocate(0) == []


def test_a_double_free_is_refused_and_changes_nothing(core: Core) -> None:
    pool = core.BlockPool(4, 4)
    table = pool.allocate(2)
    pool.release(table)
    with pytest.raises(core.PoolError):
        pool.release(table)
    assert (pool.free, pool.used) == (4, 0)
    assert sorted(pool.free_list) == [0, 1, 2, 3]


def test_a_shared_block_is_free_only_when_the_last_holder_let_go(core: Core) -> None:
    pool = core.BlockPool(4, 4)
    table = pool.allocate(2)
    pool.share(table[:1])
    assert pool.release(table) == 1
    assert (pool.free, pool.used) == (3, 1)
    assert pool.release(table[:1]) == 1
    assert (pool.free, pool.used) == (4, 0)


def test_more_than_there_is_gives_nothing_at_all(core: Core) -> None:
    pool = core.BlockPool(4, 4)
    assert pool.allocate(5) is None
    assert pool.free == 4


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_blocks_for_rounds_up(tokens: int, blocks: int) -> None:
    assert BlockPool(4, 16).blocks_for(tokens) == blocks


@pytest.mark.parametrize(("total", "block_size"), [(0, 16), (4, 0), (-1, 16)])
def test_an_empty_pool_is_refused(total: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="a pool needs blocks"):
        BlockPool(total, block_size)
