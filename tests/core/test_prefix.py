"""The prefix cache. Blocks hold 4 tokens; ``SYSTEM`` fills three of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import UNSET
from simulation.core_modules import Core
from simulation.fake_runner import token_at
from support.scheduling import Rig, admitted, counts, name_key, preempted

SYSTEM = [1000 + position for position in range(12)]


def cached_rig(core: Core, **settings: Any) -> Rig:
    return Rig(core, prefix_cache=True, **settings)


def finish_one(rig: Rig, name: str = "first", tail: Sequence[int] = (7, 8)) -> list[int]:
    """Run a request that begins with SYSTEM to its end; its block table."""
    request = rig.add(name, tokens=[*SYSTEM, *tail], max_tokens=1)
    rig.run()
    return list(request.block_table)


def test_a_second_request_takes_the_full_blocks_of_the_first_and_computes_the_rest(core: Core) -> None:
    rig = cached_rig(core)
    table = finish_one(rig)
    second = rig.add("second", tokens=[*SYSTEM, 9])
    plan = rig.step()
    assert second.block_table[:3] == table[:3]
    assert second.block_table[3] not in table[:3]
    assert (plan.chunks[0].start, plan.chunks[0].count, plan.chunks[0].samples) == (12, 1, True)
    assert (second.cached_tokens, plan.admitted[0].cached_tokens) == (12, 12)
    rig.run()
    assert second.output == rig.expected("second", 8)


def test_blocks_in_use_are_shared_and_stay_until_the_last_holder_ends(core: Core) -> None:
    rig = cached_rig(core)
    first = rig.add("first", tokens=[*SYSTEM, 7], max_tokens=3)
    rig.step()
    second = rig.add("second", tokens=[*SYSTEM, 9], max_tokens=9)
    used = rig.pool.used
    rig.step()
    shared = first.block_table[:3]
    assert second.block_table[:3] == shared
    assert [rig.pool.ref_counts[block] for block in shared] == [2, 2, 2]
    assert rig.pool.used == used + 1
    while "first" not in rig.ended:
        rig.step()
    assert [rig.pool.ref_counts[block] for block in shared] == [1, 1, 1]
    rig.run()
    assert second.output == rig.expected("second", 9)
    assert (rig.pool.used, rig.pool.cached + rig.pool.free) == (0, 16)


def test_cancelling_one_of_two_sharers_leaves_the_other_its_blocks(core: Core) -> None:
    rig = cached_rig(core)
    rig.add("first", tokens=[*SYSTEM, 7], max_tokens=20)
    rig.step()
    second = rig.add("second", tokens=[*SYSTEM, 9], max_tokens=9)
    rig.step()
    finish = rig.scheduler.abort("first")
    assert finish.freed_blocks == 1
    rig.add("third", prompt=20)
    rig.run()
    assert second.output == rig.expected("second", 9)


def test_a_wholly_cached_prompt_still_computes_its_last_token(core: Core) -> None:
    rig = cached_rig(core)
    finish_one(rig, tail=())
    again = rig.add("again", tokens=SYSTEM)
    plan = rig.step()
    # All but the newest token, the last block in part.
    assert (again.cached_tokens, counts(plan)) == (11, {"again": 1})
    rig.run()
    assert again.output == rig.expected("again", 8)


def test_a_block_is_found_only_after_it_was_computed(core: Core) -> None:
    rig = cached_rig(core)
    rig.add("first", tokens=[*SYSTEM, 7])
    rig.add("second", tokens=[*SYSTEM, 7])
    plan = rig.plan()
    assert [admission.cached_tokens for admission in plan.admitted] == [0, 0]
    assert rig.pool.index.contents == {}
    rig.commit(plan)
    assert len(rig.pool.index.contents) == 3


def test_an_aborted_request_leaves_nothing_that_was_not_computed(core: Core) -> None:
    rig = cached_rig(core)
    rig.add("first", tokens=[*SYSTEM, 7])
    plan = rig.plan()
    rig.scheduler.abort("first")
    rig.commit(plan)
    assert rig.pool.index.contents == {}
    assert (rig.pool.free, rig.pool.cached) == (16, 0)


def test_a_partly_filled_block_is_not_kept(core: Core) -> None:
    rig = cached_rig(core, token_budget=8)
    rig.add("first", tokens=[*SYSTEM, 7, 8])
    assert counts(rig.step()) == {"first": 8}
    assert len(rig.pool.index.contents) == 2
    rig.step()
    assert len(rig.pool.index.contents) == 3


def test_equal_tokens_behind_another_beginning_are_not_a_hit(core: Core) -> None:
    rig = cached_rig(core)
    finish_one(rig)
    other = rig.add("other", tokens=[1, 2, 3, 4, *SYSTEM[4:], 9])
    rig.step()
    assert other.cached_tokens == 0


def test_tenants_do_not_share(core: Core) -> None:
    rig = cached_rig(core)
    rig.add("a", tokens=[*SYSTEM, 7], max_tokens=1, cache_salt="tenant a")
    rig.run()
    b = rig.add("b", tokens=[*SYSTEM, 7], max_tokens=1, cache_salt="tenant b")
    rig.step()
    assert b.cached_tokens == 0
    again = rig.add("again", tokens=[*SYSTEM, 7], max_tokens=1, cache_salt="tenant a")
    rig.step()
    assert again.cached_tokens == 12


def test_a_hash_collision_is_no_hit(core: Core) -> None:
    rig = cached_rig(core)
    rig.pool.index = core.PrefixIndex(4, enabled=True, hash_block=lambda parent, tokens: b"same")
    rig.add("first", tokens=[*SYSTEM, 7], max_tokens=1)
    rig.run()
    other = rig.add("other", prompt=13)
    rig.step()
    assert other.cached_tokens == 0
    same = rig.add("same", tokens=[*SYSTEM, 7])
    rig.step()
    assert same.cached_tokens == 4, "the one block that was kept"
    rig.run()


def test_the_hash_of_a_block_is_the_same_in_every_process(core: Core) -> None:
    assert core.hash_block(b"parent", [1, 2, 3]).hex() == "640aba7f0479258751f6e4bd8e64905f"
    assert core.hash_block(b"parent", [1, 2, 4]) != core.hash_block(b"parent", [1, 2, 3])
    assert core.hash_block(b"other!", [1, 2, 3]) != core.hash_block(b"parent", [1, 2, 3])


def test_free_blocks_are_reused_before_cached_ones_and_tails_before_heads(core: Core) -> None:
    rig = cached_rig(core, blocks=8)
    table = finish_one(rig)
    assert (rig.pool.free, rig.pool.cached) == (5, 3)
    assert rig.pool.allocate(5) is not None
    assert rig.pool.take_evicted() == []
    assert rig.pool.allocate(2) == [table[2], table[1]]
    assert rig.pool.take_evicted() == [table[2], table[1]]
    assert rig.pool.take_evicted() == []
    assert rig.pool.cached == 1


def test_what_was_let_go_first_is_reused_first_and_a_hit_makes_it_new(core: Core) -> None:
    rig = cached_rig(core, blocks=12)
    rig.add("old", tokens=[*SYSTEM[:4], 7], max_tokens=1)
    rig.run()
    rig.add("newer", prompt=5, max_tokens=1)
    rig.run()
    newer = rig.requests["newer"].block_table[0]
    again = rig.add("again", tokens=[*SYSTEM[:4], 8], max_tokens=1)
    rig.run()
    assert again.cached_tokens == 4
    rig.pool.allocate(rig.pool.free)
    assert rig.pool.allocate(1) == [newer]


def test_an_evicted_block_is_not_found_and_what_stood_behind_it_neither(core: Core) -> None:
    rig = cached_rig(core, blocks=8)
    table = finish_one(rig)
    rig.pool.share(table[:1])
    rig.pool.share(table[2:3])
    rest = rig.pool.allocate(6)
    rig.pool.release([*rest, table[0]])
    rig.pool.release([table[2]])
    again = rig.add("again", tokens=[*SYSTEM, 9], max_tokens=1)
    rig.step()
    assert again.cached_tokens == 4
    assert len({*again.block_table}) == len(again.block_table)
    rig.run()


def test_the_hit_is_not_evicted_for_the_blocks_behind_it(core: Core) -> None:
    rig = cached_rig(core, blocks=6)
    table = finish_one(rig)
    longer = rig.add("longer", tokens=[*SYSTEM, *range(50, 58)], max_tokens=3)
    plan = rig.step()
    assert longer.cached_tokens == 12
    assert longer.block_table[:3] == table[:3]
    assert plan.evicted == []
    rig.run()


def test_cached_blocks_that_a_hit_takes_count_as_needed(core: Core) -> None:
    rig = cached_rig(core, blocks=8, max_running=2)
    finish_one(rig)
    rig.add("runs", prompt=16, max_tokens=3)
    rig.step()
    assert (rig.pool.used, rig.pool.available) == (5, 3)
    rig.add("waits", tokens=[*SYSTEM, 9])
    assert admitted(rig.step()) == []
    assert rig.reason("waits") == ("kv", None)
    assert rig.scheduler.admission.needs(rig.requests["waits"]) == 4
    rig.run()
    assert rig.requests["waits"].output == rig.expected("waits", 8)


def test_blocks_that_others_hold_already_cost_the_mark_nothing(core: Core) -> None:
    rig = cached_rig(core, blocks=8, admit_limit=5)
    rig.add("first", tokens=[*SYSTEM, 7], max_tokens=3)
    rig.step()
    second = rig.add("second", tokens=[*SYSTEM, 9], max_tokens=3)
    assert admitted(rig.step()) == ["second"]
    assert rig.pool.used == 5
    rig.add("third", tokens=[*SYSTEM, 9, 9, 9, 9], max_tokens=3)
    rig.step()
    assert rig.reason("third") == ("headroom", None)
    assert rig.scheduler.admission.needs(rig.requests["third"]) == 2
    rig.run()
    assert second.output == rig.expected("second", 3)


def test_growing_reuses_cached_blocks_before_anybody_is_preempted(core: Core) -> None:
    rig = cached_rig(core, blocks=6)
    table = finish_one(rig)
    grows = rig.add("grows", prompt=4, max_tokens=19)
    evicted: list[int] = []
    while rig.scheduler.has_work:
        plan = rig.step()
        assert preempted(plan) == []
        evicted += plan.evicted
    assert evicted == [table[2], table[1], table[0]]
    assert grows.output == rig.expected("grows", 19)
    assert rig.scheduler.counters.evicted_blocks == 3


def test_the_preempted_find_again_what_they_computed(core: Core) -> None:
    rig = cached_rig(core, blocks=6)
    rig.add("a", max_tokens=20)
    victim = rig.add("b", max_tokens=20)
    while not victim.preemptions:
        rig.step()
    # Three full blocks were given up, and the tail of them reused at once.
    assert (victim.total_tokens, victim.cached_tokens) == (13, 0)
    rig.scheduler.abort("a")
    plan = rig.step()
    assert (victim.cached_tokens, counts(plan)) == (8, {"b": 5})
    counters = rig.scheduler.counters
    assert (counters.prefix_queries_tokens, counters.prefix_hit_tokens) == (8, 0)
    assert (counters.prefix_requery_tokens, counters.prefix_rehit_tokens) == (13, 8)
    rig.run()
    assert victim.output == rig.expected("b", 20)


def test_lookups_count_once_however_long_a_request_waited(core: Core) -> None:
    rig = cached_rig(core, max_running=2, blocks=8)
    finish_one(rig)
    rig.add("runs", prompt=16, max_tokens=5)
    rig.step()
    rig.add("waits", tokens=[*SYSTEM, 9, 10], max_tokens=2)
    for _ in range(3):
        assert admitted(rig.step()) == []
    rig.run()
    counters = rig.scheduler.counters
    assert counters.prefix_queries_tokens == 14 + 16 + 14
    assert counters.prefix_hit_tokens == rig.requests["waits"].cached_tokens
    assert (counters.prefix_requery_tokens, counters.prefix_rehit_tokens) == (0, 0)


def test_a_request_from_elsewhere_counts_apart(core: Core) -> None:
    rig = cached_rig(core)
    finish_one(rig)
    moved = rig.add("moved", tokens=[*SYSTEM, 9], max_tokens=3, output=[token_at(name_key("moved"), 0)])
    rig.step()
    assert moved.cached_tokens == 12
    counters = rig.scheduler.counters
    assert (counters.prefix_queries_tokens, counters.prefix_hit_tokens) == (14, 0)
    assert (counters.prefix_requery_tokens, counters.prefix_rehit_tokens) == (14, 12)
    rig.run()
    assert moved.output == rig.expected("moved", 3)


def test_of_two_equal_blocks_one_is_kept_and_the_other_is_free_again(core: Core) -> None:
    rig = cached_rig(core)
    rig.add("first", tokens=[*SYSTEM, 7], max_tokens=1)
    rig.add("second", tokens=[*SYSTEM, 7], max_tokens=1)
    rig.run()
    assert (rig.pool.cached, rig.pool.free) == (3, 13)


def test_switched_off_nothing_is_kept_found_or_counted(core: Core) -> None:
    rig = Rig(core)
    finish_one(rig)
    second = rig.add("second", tokens=[*SYSTEM, 9], max_tokens=1)
    rig.run()
    assert second.cached_tokens == 0
    assert (rig.pool.free, rig.pool.cached) == (16, 0)
    assert rig.scheduler.counters.prefix_queries_tokens == 0


def test_a_block_that_is_neither_held_nor_cached_cannot_be_shared(core: Core) -> None:
    rig = cached_rig(core)
    table = finish_one(rig)
    with pytest.raises(core.PoolError):
        rig.pool.share([table[0], rig.pool.free_list[0]])
    assert (rig.pool.used, rig.pool.cached) == (0, 3)


def test_cached_blocks_are_their_own_run_on_the_map(core: Core) -> None:
    rig = cached_rig(core, blocks=8)
    finish_one(rig)
    assert [
        (run.first, run.count, run.state, run.refs, run.evict_quarter)
        for run in core.block_runs(core.block_map(rig.scheduler))
    ] == [
        (0, 1, "cached", 0, 3),
        (1, 1, "cached", 0, 2),
        (2, 1, "cached", 0, 1),
        (3, 5, "free", 0, UNSET),
    ]
    rig.add("a", tokens=[*SYSTEM, 7])
    rig.step()
    rig.add("b", tokens=[*SYSTEM, 8])
    rig.step()
    runs = core.block_runs(core.block_map(rig.scheduler))
    assert [(run.first, run.count, run.state, run.refs, run.owners) for run in runs[:3]] == [
        (0, 3, "used", 2, ("a", "b")),
        (3, 1, "used", 1, ("a",)),
        (4, 1, "used", 1, ("b",)),
    ]
    assert [row.cached_tokens for row in core.rows(rig.scheduler)] == [12, 12]
