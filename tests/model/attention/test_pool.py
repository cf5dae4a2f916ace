"""A pool in either layout keeps, copies and swaps the same keys and values."""

import random

import pytest
import torch
from infer_engine.model.attention.pool import KvPool, Layout
from support.shapes import CPU, make_architecture

SIZE, BLOCKS = 4, 12
ARCHITECTURE = make_architecture(heads=4, kv_heads=2, head_dim=8)


def make_pool(layout: Layout, **more: int) -> KvPool:
    return KvPool(ARCHITECTURE, BLOCKS, SIZE, torch.float32, CPU, layout=layout, **more)


def filled(layout: Layout, **more: int) -> KvPool:
    """Each slot of each layer holds numbers of its own."""
    pool = make_pool(layout, **more)
    slots = torch.arange(BLOCKS * SIZE)
    for layer in range(ARCHITECTURE.layers):
        values = torch.arange(slots.numel() * 4 * 8, dtype=torch.float32).view(-1, 4, 8) + layer * 1e6
        pool.write(layer, pool.slot_rows(slots), values)
    return pool


def contents(pool: KvPool, layer: int) -> torch.Tensor:
    """[2, blocks, block_size, kv_heads, head_dim] of the pool's own blocks."""
    return torch.stack(pool.pages(layer))[:, :BLOCKS].clone()


def test_layouts_hold_the_same() -> None:
    heads, pages = filled("heads", spare_blocks=1), filled("pages", spare_blocks=1)
    for layer in range(ARCHITECTURE.layers):
        assert torch.equal(contents(heads, layer), contents(pages, layer))
        assert contents(heads, layer).unique().numel() == BLOCKS * SIZE * 4 * 8
    assert all(one.is_contiguous() for one in pages.pages(0))
    some = torch.tensor([3, 0, 11])
    gathered = [
        pool.gather(1, pool.block_rows(some), torch.empty(2 * 2 * 3, SIZE * 8)) for pool in (heads, pages)
    ]
    assert torch.equal(*gathered)


def test_a_spare_block_is_nobodys() -> None:
    for layout in ("heads", "pages"):
        pool = filled(layout, spare_blocks=1)
        before = contents(pool, 0)
        pool.write(0, pool.slot_rows(torch.tensor([BLOCKS * SIZE] * 3)), torch.ones(3, 4, 8))
        assert torch.equal(contents(pool, 0), before)
        assert pool.blocks == BLOCKS


@pytest.mark.parametrize("layout", ["heads", "pages"])
def test_copies_read_everything_before_they_write(layout: Layout) -> None:
    pool = filled(layout, spare_blocks=1)
    before = contents(pool, 1)
    pool.copy([(1, 2), (2, 3), (3, 1)])
    after = contents(pool, 1)
    order = list(range(BLOCKS))
    order[2], order[3], order[1] = 1, 2, 3
    assert torch.equal(after, before[:, order])


@pytest.mark.parametrize("layout", ["heads", "pages"])
def test_many_blocks_go_to_the_host_and_come_back_elsewhere(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infer_engine.model.attention.pool._MOST_STAGED_BLOCKS", 3)
    pool = filled(layout, host_blocks=BLOCKS, spare_blocks=1)
    before = [contents(pool, layer) for layer in range(ARCHITECTURE.layers)]
    rng = random.Random(1)
    out, back = rng.sample(range(BLOCKS), BLOCKS), rng.sample(range(BLOCKS), BLOCKS)
    pool.swap_out(list(zip(out, range(BLOCKS), strict=True)))
    pool.swap_in(list(zip(range(BLOCKS), back, strict=True)))
    for layer in range(ARCHITECTURE.layers):
        assert torch.equal(contents(pool, layer)[:, back], before[layer][:, out])
