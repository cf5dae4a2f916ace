"""What the console is told of a scheduler."""

import random
from itertools import pairwise

import msgspec
from infer_engine.core.observe import BlockMap, block_map, block_runs, rows
from infer_engine.protocol import IDLE_STEPS_S, BlockRun
from msgspec import UNSET, UnsetType
from msgspec.json import encode
from support.scheduling import Rig


def test_an_empty_pool_is_one_run_of_free_blocks() -> None:
    assert block_runs(block_map(Rig(blocks=16).scheduler)) == [
        BlockRun(first=0, count=16, state="free", owners=(), refs=0)
    ]


def test_neighbours_of_one_owner_are_one_run_and_runs_cover_the_pool() -> None:
    rig = Rig(blocks=16)
    rig.add("a", prompt=8)
    rig.add("b", prompt=4)
    rig.step()
    assert block_runs(block_map(rig.scheduler)) == [
        BlockRun(first=0, count=3, state="used", owners=("a",), refs=1),
        BlockRun(first=3, count=2, state="used", owners=("b",), refs=1),
        BlockRun(first=5, count=11, state="free", owners=(), refs=0),
    ]


def test_a_shared_block_is_its_own_run_with_all_owners() -> None:
    rig = Rig(blocks=8)
    a = rig.add("a", prompt=4)
    b = rig.add("b", prompt=4)
    rig.step()
    rig.pool.share(a.block_table[1:])
    rig.pool.release(b.block_table[:1])
    b.block_table[0] = a.block_table[1]
    rig.check()
    assert block_runs(block_map(rig.scheduler)) == [
        BlockRun(first=0, count=1, state="used", owners=("a",), refs=1),
        BlockRun(first=1, count=1, state="used", owners=("a", "b"), refs=2),
        BlockRun(first=2, count=1, state="free", owners=(), refs=0),
        BlockRun(first=3, count=1, state="used", owners=("b",), refs=1),
        BlockRun(first=4, count=4, state="free", owners=(), refs=0),
    ]


def test_a_leaked_block_shows_as_used_by_nobody_and_not_as_free() -> None:
    rig = Rig(blocks=4)
    rig.pool.allocate(1)
    assert block_runs(block_map(rig.scheduler))[0] == BlockRun(
        first=0, count=1, state="used", owners=(), refs=1
    )


def test_rows_are_the_batch_in_its_order_then_the_queue_in_admission_order() -> None:
    rig = Rig(blocks=8, max_running=2)
    rig.add("a", prompt=6)
    rig.add("b")
    rig.add("batch", tier="batch")
    rig.add("c", prompt=8)
    rig.step()
    rig.step()
    first, second, third, fourth = rows(rig.scheduler)
    assert (first.id, first.state, first.phase, first.kv_blocks) == ("a", "running", "decode", 2)
    assert (first.computed_tokens, first.generated_tokens) == (7, 2)
    assert (first.waiting_reason, first.needs_blocks, first.admissible_blocks) == (None, None, None)
    assert second.id == "b"
    assert (third.id, third.state, third.phase) == ("c", "waiting", None)
    assert (third.waiting_reason, third.needs_blocks, third.admissible_blocks) == ("slots", 3, 4)
    assert fourth.id == "batch"
    assert len(rows(rig.scheduler, max_waiting=1)) == 3


def test_admissible_blocks_stop_at_the_mark_of_the_tier() -> None:
    rig = Rig(blocks=10, admit_limit=8, batch_limit=3)
    rig.add("a")
    rig.step()
    rig.add("interactive", prompt=28)
    rig.add("batch", prompt=28, tier="batch")
    rig.step()
    assert [row.admissible_blocks for row in rows(rig.scheduler)[1:]] == [6, 1]


def test_nothing_is_admissible_to_batch_while_it_is_shed() -> None:
    rig = Rig(blocks=10)
    rig.add("batch", prompt=8, tier="batch")
    rig.scheduler.set_shed(True)
    rig.step()
    (row,) = rows(rig.scheduler)
    assert (row.waiting_reason, row.admissible_blocks) == ("tier", 0)
    rig.scheduler.set_shed(False)
    (row,) = rows(rig.scheduler)
    assert row.admissible_blocks == 10


def test_a_chunked_prompt_is_in_prefill_until_its_last_chunk_is_computed() -> None:
    rig = Rig(token_budget=8)
    rig.add("a", prompt=20)
    phases = []
    for _ in range(4):
        rig.step()
        phases.append((rows(rig.scheduler)[0].phase, rows(rig.scheduler)[0].computed_tokens))
    assert phases == [("prefill", 8), ("prefill", 16), ("decode", 20), ("decode", 21)]


def test_many_owners_in_a_large_pool_are_told_right() -> None:
    rig = Rig(blocks=4000, block_size=16, max_running=200, token_budget=40_000, max_waiting=200)
    for index in range(200):
        rig.add(f"r{index}", prompt=20 + index)
    rig.step()
    runs = block_runs(block_map(rig.scheduler))
    assert sum(run.count for run in runs) == 4000
    assert sum(run.count for run in runs if run.state == "used") == rig.pool.used
    for run in runs:
        for owner in run.owners:
            assert set(range(run.first, run.first + run.count)) <= set(rig.requests[owner].block_table)


def test_runs_of_a_map_that_was_sent_are_what_it_says_of_every_block_under_random_fire() -> None:
    """Also of blocks that are counted and nobody holds, and of those that more hold than are counted."""
    draw = random.Random(5)
    rig = Rig(blocks=60, block_size=2, max_running=12, max_waiting=1000, prefix_cache=True)
    for index in range(400):
        rig.add(f"r{index}", prompt=draw.randint(1, 20), max_tokens=draw.randint(1, 9))
        rig.step()
        there = block_map(rig.scheduler, rig.now_s + draw.choice([0, 9, 61, 400]) if index % 2 else None)
        if index % 3 == 0:
            there.refs[draw.randrange(60)] = draw.choice([0, 1, 2, 300, 3000])
            if there.tables:
                draw.choice(there.tables)[1].append(draw.randrange(60))
        runs = block_runs(msgspec.msgpack.decode(msgspec.msgpack.encode(there), type=BlockMap))
        told = [(run.state, run.owners, run.refs, run.evict_quarter, run.idle_s) for run in runs]
        assert all(one != other for one, other in pairwise(told)), "neighbours are alike"
        lengths = [run.count for run in runs]
        assert [run.first for run in runs] == [sum(lengths[:number]) for number in range(len(runs))]
        by_block = [each for each, length in zip(told, lengths, strict=True) for _ in range(length)]
        assert by_block == [_of_block(there, block) for block in range(60)]


def _of_block(
    there: BlockMap, block: int
) -> tuple[str, tuple[str, ...], int, int | UnsetType, int | UnsetType]:
    owners = tuple(owner for owner, table in there.tables for held in table if held == block)
    count = there.refs[block]
    state = "cached" if count < 0 else "used" if count else "free"
    if count >= 0:
        return state, owners, count, UNSET, UNSET
    steps, quarter = divmod(-count - 1, 4)
    return state, owners, 0, quarter + 1, IDLE_STEPS_S[steps - 1] if steps else UNSET


def test_cached_blocks_tell_the_quarter_in_which_they_go() -> None:
    rig = Rig(blocks=16, prefix_cache=True)
    rig.add("a", prompt=16, max_tokens=1)
    rig.add("b", prompt=17, max_tokens=1)
    rig.step()
    rig.step()
    cached = list(rig.pool.cached_blocks)
    assert len(cached) >= 5
    told = {
        block: run.evict_quarter
        for run in block_runs(block_map(rig.scheduler))
        for block in range(run.first, run.first + run.count)
    }
    quarters = [told[block] for block in cached]
    assert quarters == sorted(quarters)
    assert quarters[0] == 1
    assert all(told[block] is UNSET for block in range(16) if block not in cached)
    assert b"evict" not in encode(BlockRun(0, 1, "free"))
    assert b"idle" not in encode(BlockRun(0, 1, "free"))


def test_cached_blocks_tell_for_how_long_nobody_has_held_them() -> None:
    rig = Rig(blocks=64, prefix_cache=True)
    pool = rig.pool
    let_go_s = {}
    for number, at in enumerate((100.0, 350.0, 395.0, 400.0)):
        rig.add(f"r{number}", prompt=12, max_tokens=1)
        plan = rig.scheduler.step(at)
        rig.scheduler.commit({chunk.request.id: 7 for chunk in plan.chunks if chunk.samples}, at)
        let_go_s |= {block: at for block in pool.cached_blocks if block not in let_go_s}
    assert dict(pool.cached_blocks) == let_go_s
    assert sorted(set(let_go_s.values())) == [100.0, 350.0, 395.0, 400.0]

    def told(now_s: float | None) -> dict[int, int | UnsetType]:
        runs = block_runs(block_map(rig.scheduler, now_s))
        return {
            block: run.idle_s
            for run in runs
            for block in range(run.first, run.first + run.count)
            if run.state == "cached"
        }

    ages = {at: told(400.0)[block] for block, at in let_go_s.items()}
    assert ages == {100.0: 300, 350.0: 10, 395.0: 0, 400.0: 0}
    ages = {at: told(406.0)[block] for block, at in let_go_s.items()}
    assert ages == {100.0: 300, 350.0: 10, 395.0: 10, 400.0: 0}
    assert set(told(10_000.0).values()) == {300}
    assert set(told(None).values()) == {UNSET}
    quarters = [run.evict_quarter for run in block_runs(block_map(rig.scheduler, 400.0))]
    assert set(quarters) - {UNSET} == {1, 2, 3, 4}


def test_what_a_hit_took_and_gave_back_was_used_again() -> None:
    rig = Rig(blocks=64, prefix_cache=True)
    for at in (100.0, 500.0):
        rig.add(f"at{at}", max_tokens=1, tokens=list(range(12)))
        plan = rig.scheduler.step(at)
        rig.scheduler.commit({chunk.request.id: 7 for chunk in plan.chunks if chunk.samples}, at)
    assert rig.scheduler.counters.prefix_hit_tokens > 0
    # The last block of a prompt is always computed anew, and the first of two with equal content is kept.
    assert sorted(rig.pool.cached_blocks.values()) == [100.0, 500.0, 500.0]
