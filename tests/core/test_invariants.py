"""Each thing that can be wrong is seen, and told in words."""

from collections.abc import Callable

import pytest
from infer_engine.core.invariants import violations
from support.scheduling import Rig


def lose_a_block(rig: Rig) -> None:
    rig.pool.free_list.pop()


def forget_a_free(rig: Rig) -> None:
    rig.pool.allocate(1)


def free_twice(rig: Rig) -> None:
    rig.pool.free_list.append(rig.pool.free_list[-1])


def free_what_is_held(rig: Rig) -> None:
    rig.pool.free_list[0] = rig.requests["a"].block_table[0]


def negative_count(rig: Rig) -> None:
    rig.pool.ref_counts[rig.pool.free_list[0]] = -1


def run_and_wait(rig: Rig) -> None:
    rig.scheduler.waiting.push(rig.requests["a"])


def count_one_too_many(rig: Rig) -> None:
    rig.scheduler.waiting._lanes["interactive"].fresh[0]._size += 1


def count_other_tokens(rig: Rig) -> None:
    rig.requests["w"].prompt.append(1)


def hold_a_block_of_another_pool(rig: Rig) -> None:
    rig.requests["a"].block_table.append(8)


def wait_with_blocks(rig: Rig) -> None:
    rig.requests["w"].block_table = [1]


def compute_past_the_tokens(rig: Rig) -> None:
    rig.requests["a"].computed_tokens = 99


def table_too_short(rig: Rig) -> None:
    request = rig.requests["a"]
    rig.pool.release(request.block_table[:1])
    del request.block_table[0]


def past_its_end(rig: Rig) -> None:
    rig.requests["a"].max_tokens = 1


def wrong_state(rig: Rig) -> None:
    rig.requests["a"].state = "finished"


def waits_for_ever(rig: Rig) -> None:
    rig.requests["w"].output = [0] * 99


def forget_a_hash(rig: Rig) -> None:
    rig.pool.index.blocks.popitem()


def keep_what_is_held(rig: Rig) -> None:
    rig.pool.cached_blocks[rig.requests["a"].block_table[0]] = 0.0


def lose_a_cached_block(rig: Rig) -> None:
    rig.pool.cached_blocks.popitem()
    rig.pool.free_list.append(0)


def keep_for_other_tokens(rig: Rig) -> None:
    rig.requests["a"].prompt[0] += 1


def keep_before_it_is_computed(rig: Rig) -> None:
    rig.requests["a"].computed_tokens = 0


@pytest.mark.parametrize(
    ("breakage", "said"),
    [
        (forget_a_hash, "do not match"),
        (keep_what_is_held, "not the cached ones"),
        (lose_a_cached_block, "not the cached ones"),
        (keep_for_other_tokens, "kept for other tokens"),
        (keep_before_it_is_computed, "can be found and is not computed"),
    ],
)
def test_a_breakage_of_the_prefix_cache_is_told(breakage: Callable[[Rig], None], said: str) -> None:
    rig = Rig(blocks=8, max_running=1, prefix_cache=True)
    rig.add("before", prompt=4, max_tokens=1)
    rig.run()
    rig.add("a", prompt=4)
    rig.step()
    breakage(rig)
    assert any(said in line for line in violations(rig.scheduler)), violations(rig.scheduler)


def lose_a_host_block(rig: Rig) -> None:
    rig.host.free_list.pop()


def keep_too_little_on_the_host(rig: Rig) -> None:
    rig.requests["w"].host_tokens = 1


def run_from_the_host(rig: Rig) -> None:
    rig.requests["a"].host_blocks = [0]


@pytest.mark.parametrize(
    ("breakage", "said"),
    [
        (lose_a_host_block, "host blocks are not 4"),
        (keep_too_little_on_the_host, "1 tokens in 0 host blocks"),
        (run_from_the_host, "running and on the host"),
        (lose_a_block, "!= 8 blocks"),
        (forget_a_free, "reference counts differ"),
        (free_twice, "free list twice"),
        (free_what_is_held, "free blocks with holders"),
        (negative_count, "negative reference count"),
        (run_and_wait, "waiting and running at once"),
        (count_one_too_many, "counts 2 requests, not 1"),
        (count_other_tokens, "counts 4 tokens, not 5"),
        (hold_a_block_of_another_pool, "holds block 8 of 8"),
        (wait_with_blocks, "with 1 blocks"),
        (compute_past_the_tokens, "99 of 5 tokens computed"),
        (table_too_short, "4 tokens computed in blocks for"),
        (past_its_end, "runs past its 1 tokens"),
        (wrong_state, "runs in state finished"),
        (waits_for_ever, "can never fit"),
    ],
)
def test_a_breakage_is_told(breakage: Callable[[Rig], None], said: str) -> None:
    rig = Rig(blocks=8, max_running=1, host_blocks=4)
    rig.add("a", prompt=4)
    rig.add("w")
    rig.step()
    if breakage is table_too_short:
        rig.requests["a"].block_table.pop()
        rig.pool.release([1])
    assert violations(rig.scheduler) == []
    breakage(rig)
    assert any(said in line for line in violations(rig.scheduler)), violations(rig.scheduler)
