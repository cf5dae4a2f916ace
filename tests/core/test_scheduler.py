"""What a step computes, how requests end, and that nothing is left behind. Blocks hold 4 tokens unless
said."""

import pytest
from infer_engine.core.scheduler import CommitError
from simulation.core_modules import Core
from support.scheduling import Rig, admitted, counts


def test_a_prompt_is_computed_whole_and_samples_then_one_token_a_step(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", prompt=6, max_tokens=3)
    first = rig.step()
    assert (counts(first), first.prefill_tokens, first.decode_tokens) == ({"a": 6}, 6, 0)
    assert first.chunks[0].samples
    second = rig.step()
    assert (counts(second), second.prefill_tokens, second.decode_tokens) == ({"a": 1}, 0, 1)


def test_a_prompt_longer_than_the_budget_comes_in_chunks_and_samples_only_with_the_last(core: Core) -> None:
    rig = Rig(core, token_budget=8)
    request = rig.add("a", prompt=20, max_tokens=1)
    plans = [rig.step() for _ in range(3)]
    assert [counts(plan)["a"] for plan in plans] == [8, 8, 4]
    assert [plan.chunks[0].samples for plan in plans] == [False, False, True]
    assert request.output == rig.expected("a", 1)


def test_decoding_sequences_get_their_token_however_long_the_prompt_before_them(core: Core) -> None:
    rig = Rig(core, blocks=64, max_running=4, token_budget=8)
    rig.add("early", prompt=2, max_tokens=20)
    rig.add("long", prompt=100, max_tokens=2)
    rig.step()
    rig.add("late", prompt=2, max_tokens=20)
    for _ in range(5):
        plan = rig.step()
        assert counts(plan)["early"] == 1
        assert sum(counts(plan).values()) == 8


def test_what_a_commit_finishes_the_next_plan_refills(core: Core) -> None:
    rig = Rig(core, max_running=2)
    rig.add("a", max_tokens=2)
    rig.add("b", max_tokens=9)
    rig.add("c", max_tokens=9)
    rig.step()
    plan = rig.plan()
    assert [finish.id for finish in rig.commit(plan)] == ["a"]
    assert admitted(rig.step()) == ["c"]
    assert rig.running == ["b", "c"]


def test_a_stop_token_ends_with_stop_and_is_kept_in_the_output(core: Core) -> None:
    rig = Rig(core)
    stop = Rig(core)
    stop.add("a", max_tokens=9)
    stop.run()
    third = stop.requests["a"].output[2]
    request = rig.add("a", max_tokens=9, stop_token_ids=frozenset([third]))
    rig.run()
    assert request.output == stop.requests["a"].output[:3]
    assert (request.finish_reason, rig.ended["a"].generated_tokens) == ("stop", 3)


def test_max_tokens_ends_with_length_after_exactly_so_many(core: Core) -> None:
    rig = Rig(core)
    request = rig.add("a", max_tokens=5)
    assert rig.run() == 5
    assert (request.finish_reason, request.output) == ("length", rig.expected("a", 5))


def test_blocks_come_back_in_the_commit_that_finishes(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", prompt=9, max_tokens=1)
    plan = rig.plan()
    assert rig.pool.used == 3
    (finish,) = rig.commit(plan)
    assert (finish.freed_blocks, rig.pool.free) == (3, 16)


def test_a_sequence_that_continues_from_another_replica_generates_the_rest_only(core: Core) -> None:
    alone = Rig(core)
    alone.add("a", max_tokens=8)
    alone.run()
    rig = Rig(core)
    request = rig.add("a", max_tokens=8, output=alone.requests["a"].output[:3])
    plan = rig.step()
    assert plan.admitted[0].resumed
    assert counts(plan) == {"a": 7}
    rig.run()
    assert request.output == alone.requests["a"].output
    assert rig.ended["a"].generated_tokens == 8


def test_a_sole_sequence_that_cannot_grow_ends_with_kv_exhausted_and_its_tokens(core: Core) -> None:
    rig = Rig(core, blocks=3)
    request = rig.add("a", prompt=4, max_tokens=100)
    rig.run()
    finish = rig.ended["a"]
    assert (finish.reason, finish.error, finish.freed_blocks) == ("error", "kv_exhausted", 3)
    assert request.error == "kv_exhausted"
    assert request.output == rig.expected("a", 3 * 4 - 4 + 1)
    assert rig.pool.free == 3


def test_the_step_that_ends_a_sole_sequence_admits_the_next(core: Core) -> None:
    rig = Rig(core, blocks=2)
    rig.add("a", prompt=4, max_tokens=100)
    rig.step()
    rig.add("b", prompt=4, max_tokens=1)
    plans = [rig.step() for _ in range(5)]
    assert [finish.id for finish in plans[-1].finished] == ["a"]
    assert admitted(plans[-1]) == ["b"]


# --- abort -------------------------------------------------------------------------------------------------


def test_abort_of_a_waiting_request_twice(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.add("a")
    rig.add("b")
    rig.step()
    finish = rig.scheduler.abort("b", "cancelled")
    assert (finish.reason, finish.freed_blocks) == ("cancelled", 0)
    assert rig.scheduler.abort("b", "cancelled") is None
    rig.check()
    assert rig.waiting == []


def test_abort_before_any_step_has_seen_the_request(core: Core) -> None:
    rig = Rig(core)
    rig.add("a")
    assert rig.scheduler.abort("a").freed_blocks == 0
    assert not rig.scheduler.has_work
    assert rig.step().chunks == []


def test_abort_of_a_running_request_gives_its_blocks_back_at_once_and_only_once(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", prompt=9)
    rig.step()
    finish = rig.scheduler.abort("a", "cancelled")
    assert (finish.freed_blocks, rig.pool.free) == (3, 16)
    assert rig.scheduler.abort("a", "cancelled") is None
    rig.check()


def test_abort_in_the_middle_of_a_chunked_prefill(core: Core) -> None:
    rig = Rig(core, token_budget=8)
    rig.add("a", prompt=30)
    rig.step()
    assert rig.scheduler.abort("a").generated_tokens == 0
    assert rig.pool.free == 16
    rig.check()


def test_abort_while_the_step_is_being_executed_drops_its_token(core: Core) -> None:
    rig = Rig(core)
    gone = rig.add("gone", max_tokens=1)
    rig.add("stays")
    plan = rig.plan()
    assert rig.scheduler.abort("gone", "cancelled") is not None
    assert rig.commit(plan) == []
    assert (gone.output, gone.finish_reason) == ([], "cancelled")
    assert rig.running == ["stays"]


def test_abort_and_return_of_the_same_id_while_the_step_is_being_executed(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", max_tokens=4)
    plan = rig.plan()
    rig.scheduler.abort("a", "cancelled")
    again = rig.add("a", max_tokens=4)
    rig.commit(plan)
    assert again.output == []
    rig.run()
    assert again.output == rig.expected("a", 4)


def test_abort_of_a_preempted_request_frees_nothing_twice(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("a", prompt=4, max_tokens=12)
    rig.add("b", prompt=4, max_tokens=12)
    while not rig.scheduler.counters.preemptions:
        rig.step()
    assert rig.waiting == ["b"]
    assert rig.scheduler.abort("b").freed_blocks == 0
    rig.check()
    rig.run()
    assert rig.pool.free == 4


def test_abort_of_an_unknown_or_finished_id_is_nothing(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", max_tokens=1)
    rig.run()
    assert rig.scheduler.abort("a") is None
    assert rig.scheduler.abort("never-seen") is None


def test_abort_with_stop_is_how_a_stop_string_ends_a_request(core: Core) -> None:
    rig = Rig(core)
    request = rig.add("a")
    rig.step()
    assert rig.scheduler.abort("a", "stop").reason == "stop"
    assert request.finish_reason == "stop"


# --- the door ----------------------------------------------------------------------------------------------


def test_a_prompt_beyond_the_pool_is_refused_at_once_with_both_numbers(core: Core) -> None:
    rig = Rig(core, blocks=4)
    with pytest.raises(core.NeverFits, match="need 5 KV blocks, the pool has 4") as refused:
        rig.add("a", prompt=16)
    assert refused.value.numbers == {"needed_blocks": 5, "total_blocks": 4}
    assert not rig.scheduler.has_work
    rig.add("b", prompt=15)
    rig.run()


def test_a_request_beyond_the_context_is_refused_at_once_with_all_numbers(core: Core) -> None:
    rig = Rig(core, context=32)
    with pytest.raises(core.NeverFits) as refused:
        rig.add("a", prompt=20, max_tokens=13)
    assert refused.value.numbers == {"prompt_tokens": 20, "max_tokens": 13, "context_length": 32}
    rig.add("b", prompt=20, max_tokens=12)


def test_one_that_never_fits_does_not_block_those_behind_it(core: Core) -> None:
    rig = Rig(core, blocks=4)
    with pytest.raises(core.NeverFits):
        rig.add("too-long", prompt=400)
    rig.add("small")
    assert admitted(rig.step()) == ["small"]


def test_a_live_id_is_refused_and_the_first_goes_on(core: Core) -> None:
    rig = Rig(core)
    first = rig.add("a", max_tokens=3)
    with pytest.raises(core.DuplicateId, match="waiting"):
        rig.add("a")
    rig.step()
    with pytest.raises(core.DuplicateId, match="running"):
        rig.add("a")
    rig.run()
    assert first.output == rig.expected("a", 3)
    rig.ended.clear()
    rig.add("a")
    assert rig.waiting == ["a"]


def test_a_full_queue_refuses_with_both_numbers_but_takes_the_preempted(core: Core) -> None:
    rig = Rig(core, blocks=4, max_waiting=1)
    rig.add("a", max_tokens=12)
    rig.step()
    rig.add("b", max_tokens=12)
    rig.step()
    rig.add("c")
    with pytest.raises(core.QueueFull) as refused:
        rig.add("d")
    assert refused.value.numbers == {"waiting": 1, "max_waiting": 1}
    while not rig.scheduler.counters.preemptions:
        rig.step()
    assert rig.waiting == ["b", "c"]
    rig.run()


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "output"), [(0, 4, []), (4, 0, []), (4, 2, [5, 6]), (4, -1, [])]
)
def test_a_request_without_anything_to_compute_is_refused(
    core: Core, prompt: int, max_tokens: int, output: list[int]
) -> None:
    rig = Rig(core)
    with pytest.raises(core.InvalidRequest):
        rig.add("a", prompt=prompt, max_tokens=max_tokens, output=output)
    assert not rig.scheduler.has_work


def test_refusals_are_counted_by_code(core: Core) -> None:
    rig = Rig(core, blocks=4)
    for _ in range(2):
        with pytest.raises(core.NeverFits):
            rig.add("a", prompt=99)
    assert rig.scheduler.counters.refused == {"never_fits": 2}


# --- closing -----------------------------------------------------------------------------------------------


def test_closing_hands_the_queue_back_in_order_and_the_running_run_on(core: Core) -> None:
    rig = Rig(core, max_running=1)
    for name in ("a", "b", "c"):
        rig.add(name, max_tokens=2)
    rig.add("d", tier="batch")
    rig.step()
    assert [request.id for request in rig.scheduler.close_admission()] == ["b", "c", "d"]
    with pytest.raises(core.AdmissionClosed):
        rig.add("e")
    rig.run()
    assert list(rig.ended) == ["a"]
    rig.scheduler.open_admission()
    rig.add("b", max_tokens=2)
    rig.run()
    assert "b" in rig.ended


def test_closing_hands_back_a_preempted_request_with_its_tokens(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("a", max_tokens=12)
    victim = rig.add("b", max_tokens=12)
    while not rig.scheduler.counters.preemptions:
        rig.step()
    done = len(victim.output)
    assert rig.scheduler.close_admission() == [victim]
    assert done > 0
    assert victim.output == rig.expected("b", done)
    assert (victim.block_table, victim.computed_tokens) == ([], 0)
    rig.check()


def test_who_is_preempted_after_closing_comes_back_and_finishes_here(core: Core) -> None:
    rig = Rig(core, blocks=4)
    rig.add("a", max_tokens=12)
    rig.add("b", max_tokens=12)
    rig.step()
    assert rig.scheduler.close_admission() == []
    rig.run()
    assert rig.scheduler.counters.preemptions > 0
    assert {finish.reason for finish in rig.ended.values()} == {"length"}
    assert rig.requests["b"].output == rig.expected("b", 12)


# --- misuse ------------------------------------------------------------------------------------------------


def test_a_second_plan_before_the_commit_is_an_error(core: Core) -> None:
    rig = Rig(core)
    rig.add("a")
    rig.plan()
    with pytest.raises(RuntimeError, match="has not been committed"):
        rig.scheduler.step(9.0)


def test_tokens_that_do_not_belong_to_the_plan_commit_nothing() -> None:
    rig = Rig()
    request = rig.add("a")
    plan = rig.plan()
    for tokens in ({}, {"a": 1, "b": 2}, {"b": 2}):
        with pytest.raises(CommitError):
            rig.scheduler.commit(tokens, 9.0)
    assert (request.output, request.computed_tokens) == ([], 0)
    rig.commit(plan)
    with pytest.raises(RuntimeError, match="without a plan"):
        rig.scheduler.commit({}, 9.0)


def test_a_clock_that_goes_backwards_makes_no_negative_wait(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", arrival_s=1e9)
    rig.now_s = -5.0
    assert rig.step().admitted[0].waited_s == 0


def test_counters_count_once(core: Core) -> None:
    rig = Rig(core)
    rig.add("a", prompt=6, max_tokens=3)
    rig.add("b", prompt=6, max_tokens=1)
    rig.run()
    counters = rig.scheduler.counters
    assert (counters.steps, counters.admissions, counters.resumptions) == (3, 2, 0)
    assert (counters.prefill_tokens, counters.decode_tokens, counters.generated_tokens) == (12, 2, 4)
    assert counters.finished == {"length": 2}


def test_the_queue_is_bounded_in_tokens_too_and_says_how_many(core: Core) -> None:
    rig = Rig(core, max_running=1)
    rig.scheduler.set_limits(max_waiting_tokens=20)
    rig.add("runs", prompt=30)
    rig.step()
    rig.add("first", prompt=12)
    rig.add("second", prompt=8)
    with pytest.raises(core.QueueFull) as refused:
        rig.add("third", prompt=1)
    assert refused.value.numbers == {"waiting_tokens": 20, "request_tokens": 1, "max_waiting_tokens": 20}
    rig.scheduler.abort("second")
    rig.add("third", prompt=8)
    rig.run()


def test_an_empty_queue_takes_a_request_of_more_tokens_than_may_wait(core: Core) -> None:
    rig = Rig(core)
    rig.scheduler.set_limits(max_waiting_tokens=5)
    rig.add("long", prompt=30, max_tokens=1)
    rig.run()
    assert rig.ended["long"].reason == "length"
