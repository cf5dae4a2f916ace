"""The block map under patches: what a hostile or odd server may send stays within bounds."""

from infer_console.state.blocks import MAX_BLOCKS, MAX_REFS, SWEEP_AT, BlockTable
from infer_console.state.picture import CACHED, FREE, NO_OWNER, USED
from infer_engine.protocol import BlockRun


def test_runs_patch_and_the_rest_stays() -> None:
    table = BlockTable(8, 16)
    table.apply([BlockRun(2, 3, "used", ("a", "b"), 2), BlockRun(6, 1, "cached", (), 0)])
    shown = table.picture()
    assert list(shown.kinds) == [FREE, FREE, USED, USED, USED, FREE, CACHED, FREE]
    assert [shown.owners[each] for each in shown.owner[2:5]] == ["a"] * 3
    assert list(shown.refs) == [0, 0, 2, 2, 2, 0, 0, 0]
    assert shown.block_size == 16


def test_an_unchanged_table_hands_out_the_same_map() -> None:
    table = BlockTable(4, 16)
    assert table.picture() is table.picture()
    before = table.picture()
    table.resize(4, 16)
    assert table.picture() is before


def test_runs_beyond_the_pool_are_cut_and_numbers_are_capped() -> None:
    table = BlockTable(4, 16)
    table.apply([BlockRun(-2, 3, "used", ("a",), 1 << 40), BlockRun(3, 1 << 50, "used", ("b",), -1)])
    table.apply([BlockRun(100, 5, "used", ("c",), 1), BlockRun(2, -1, "used", ("d",), 1)])
    shown = table.picture()
    assert list(shown.kinds) == [USED, FREE, FREE, USED]
    assert list(shown.refs) == [MAX_REFS, 0, 0, 0]


def test_a_pool_of_absurd_size_is_cut() -> None:
    assert BlockTable(1 << 40, 16).total == MAX_BLOCKS


def test_a_resized_pool_keeps_what_is_still_in_it() -> None:
    table = BlockTable(4, 16)
    table.apply([BlockRun(0, 4, "used", ("a",), 1)])
    table.resize(2, 16)
    table.resize(3, 32)
    shown = table.picture()
    assert (shown.total, shown.block_size, list(shown.kinds)) == (3, 32, [USED, USED, FREE])


def test_owners_that_own_nothing_any_more_are_swept_and_live_ones_keep_their_blocks() -> None:
    table = BlockTable(8, 16)
    table.apply([BlockRun(0, 1, "used", ("stays",), 1)])
    for number in range(3 * SWEEP_AT):
        table.apply([BlockRun(1, 1, "used", (f"q{number}",), 1)])
    shown = table.picture()
    assert len(shown.owners) <= SWEEP_AT
    assert [shown.owners[each] for each in shown.owner[:2]] == ["stays", f"q{3 * SWEEP_AT - 1}"]
    assert set(shown.owner[2:]) == {NO_OWNER}


def test_for_how_long_cached_blocks_are_idle_is_kept_by_block_and_in_steps() -> None:
    table = BlockTable(6, 16)
    idle = [0, 10, 59, 60, 10**9, -5]
    table.apply([BlockRun(number, 1, "cached", idle_s=each) for number, each in enumerate(idle)])
    assert list(table.picture().idle_steps) == [1, 2, 2, 3, 4, 0]
    table.apply([BlockRun(0, 2, "used", ("a",), 1)])
    table.resize(7, 16)
    assert list(table.picture().idle_steps) == [0, 0, 2, 3, 4, 0, 0]


def test_which_quarter_goes_first_is_kept_by_block_and_bounded() -> None:
    table = BlockTable(8, 16)
    table.apply(
        [BlockRun(0, 2, "cached", (), 0, 1), BlockRun(2, 2, "cached"), BlockRun(4, 2, "cached", (), 0, 99)]
    )
    assert list(table.picture().evict_quarters) == [1, 1, 0, 0, 4, 4, 0, 0]
    table.apply([BlockRun(0, 1, "used", ("a",), 1)])
    table.resize(4, 16)
    assert list(table.picture().evict_quarters) == [0, 1, 0, 0]
