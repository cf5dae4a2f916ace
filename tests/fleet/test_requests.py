"""From submit to the last token, and every way in which a request ends or is not taken."""

from itertools import pairwise

import pytest
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Step
from support.fleets import finished, running_fleet, spec, until
from support.replicas import FIRST_TOKEN


async def test_tokens_arrive_in_order_and_the_feed_tells_the_story() -> None:
    async with running_fleet(replicas=1) as bench:
        generation = bench.submit(prompt_tokens=6, max_tokens=5, client_id="\x1b[2Jlabel")
        await finished(generation)
        assert generation.emitted == [FIRST_TOKEN + 6 + n for n in range(5)]
        assert (generation.finish_reason, generation.error, generation.replica) == ("length", None, "r0")
        assert len(generation.emitted_s) == 5
        admit, finish = bench.events("admit")[0], bench.events("finish")[0]
        assert (admit.request, admit.replica, admit.blocks) == (generation.id, "r0", 2)
        assert admit.wait_s is not None
        assert admit.wait_s >= 0
        assert (finish.request, finish.reason, finish.blocks, finish.tokens) == (
            generation.id,
            "length",
            3,
            5,
        )
        row = bench.fleet.row(generation.id)
        assert row is not None
        assert (row.state, row.finish_reason, row.generated_tokens, row.kv_blocks) == (
            "finished",
            "length",
            5,
            0,
        )
        assert row.ttft_s is not None
        assert row.client_id == "\x1b[2Jlabel"
        assert bench.fleet.find(generation.id) is None
        assert all("\x1b" not in repr(event) for event in bench.fleet.feed.events())


async def test_what_a_step_finishes_the_next_one_refills() -> None:
    lengths = [12, 19, 14, 17, 13, 22, 15, 16, 18, 12]
    async with running_fleet(replicas=1, kv_blocks=64, max_running=3, held=True) as bench:
        generations = [bench.submit(4, length) for length in lengths]
        await bench.heard("r0", 10)
        bench.launcher.now("r0").runner.release()
        await finished(*generations)
        steps = bench.steps("r0")
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))
        refills = 0
        for step, following in pairwise(steps):
            if step.finished and step.waiting:
                assert len(following.admitted) == min(len(step.finished), step.waiting)
                refills += 1
        assert refills >= 3
        assert [each for step in steps for each in step.admitted] == [each.id for each in generations]
        assert all(step.kv_used + step.kv_free == 64 for step in steps)
        assert steps[-1].kv_used == 0


async def test_a_burst_is_spread_before_any_replica_has_said_a_word() -> None:
    async with running_fleet(replicas=3, held=True) as bench:
        generations = [bench.submit() for _ in range(9)]
        placed = [generation.replica for generation in generations]
        assert {replica: placed.count(replica) for replica in ("r0", "r1", "r2")} == {
            "r0": 3,
            "r1": 3,
            "r2": 3,
        }
        waiting = bench.fleet.rows(state="waiting")
        assert {row.id for row in waiting} == {generation.id for generation in generations}


async def test_ids_are_short_plain_and_repeat_only_with_the_seed() -> None:
    async def ids(seed: int) -> list[str]:
        async with running_fleet(replicas=1, seed=seed) as bench:
            return [bench.submit().id for _ in range(5)]

    first = await ids(7)
    assert first == await ids(7)
    assert first != await ids(8)
    assert await ids(0) != await ids(0)
    assert all(len(each) == 6 and set(each) <= set("0123456789abcdef") for each in first)


# --- cancelling --------------------------------------------------------------------------------------------


async def test_cancelling_a_running_request_frees_its_blocks_within_one_step() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        runner = bench.launcher.now("r0").runner
        victim, other = bench.submit(10, 40), bench.submit(4, 40)
        runner.allow(3)
        await until(lambda: len(bench.steps("r0")) == 3)
        before = bench.steps("r0")[-1]
        assert bench.fleet.cancel(victim.id, actor="alice")
        assert bench.fleet.cancel(victim.id), "asking twice is fine"
        await bench.step_until("r0", lambda: victim.finished)
        done = next(step for step in bench.steps("r0") if [each.id for each in step.finished] == [victim.id])
        assert (before.kv_used, done.running) == (5, 1)
        # The report of its end has its blocks back already; the other one may have grown by a block.
        freed = bench.events("finish")[0].blocks
        assert freed in (3, 4)
        previous = next(step for step in bench.steps("r0") if step.step == done.step - 1)
        assert done.kv_used - (previous.kv_used - freed) in (0, 1)
        assert (victim.finish_reason, victim.error_code) == ("cancelled", "cancelled_by_operator")
        assert bench.events("finish")[0].actor == "alice"
        assert not bench.fleet.cancel(victim.id), "it is over"
        runner.release()
        await finished(other)
        assert other.finish_reason == "length"
        assert bench.steps("r0")[-1].kv_used == 0


async def test_cancelling_a_queued_request() -> None:
    async with running_fleet(replicas=1, max_running=1, held=True) as bench:
        runner = bench.launcher.now("r0").runner
        running, queued = bench.submit(4, 6), bench.submit(4, 6)
        runner.allow(2)
        await until(lambda: len(bench.steps("r0")) == 2)
        assert bench.fleet.cancel(queued.id, code="client_disconnected")
        runner.release()
        await finished(queued, running)
        assert (queued.finish_reason, queued.error_code, queued.emitted) == (
            "cancelled",
            "client_disconnected",
            [],
        )
        assert queued.admitted_s is None
        assert running.finish_reason == "length"
        assert queued.id not in [each for step in bench.steps("r0") for each in step.admitted]


async def test_a_stop_string_ends_as_stop_and_without_an_error() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        runner = bench.launcher.now("r0").runner
        generation = bench.submit(4, 50)
        runner.allow(2)
        await until(lambda: len(generation.emitted) == 2)
        assert bench.fleet.cancel(generation.id, reason="stop")
        runner.release()
        await finished(generation)
        assert (generation.finish_reason, generation.error, generation.error_code) == ("stop", None, None)
        assert bench.fleet.status().totals.finished == {"stop": 1}
        last = [each for step in bench.steps("r0") for each in step.finished]
        assert [(each.id, each.reason) for each in last] == [(generation.id, "stop")]


async def test_cancelling_nobody() -> None:
    async with running_fleet(replicas=1) as bench:
        assert not bench.fleet.cancel("nobody")


# --- not taken ---------------------------------------------------------------------------------------------


async def test_what_can_never_fit_is_refused_with_both_numbers() -> None:
    async with running_fleet(replicas=1, kv_blocks=16) as bench:
        with pytest.raises(Refusal) as pool:
            bench.submit(prompt_tokens=64, max_tokens=1)
        assert (pool.value.problem.status, pool.value.problem.code) == (400, "never_fits")
        assert pool.value.problem.numbers["requested_tokens"] == 65
        assert pool.value.problem.numbers["pool_tokens"] == 64
        with pytest.raises(Refusal) as context:
            bench.submit(prompt_tokens=60, max_tokens=4037)
        assert context.value.problem.numbers["requested_tokens"] == 4097
        assert context.value.problem.numbers["context_length"] == 4096
        assert [event.reason for event in bench.events("reject")] == ["never_fits", "never_fits"]
        assert bench.fleet.rows() == []
        generation = bench.submit(prompt_tokens=63, max_tokens=1)
        await finished(generation)
        assert generation.finish_reason == "length"


async def test_a_full_queue_is_429_and_leaves_nothing_behind() -> None:
    async with running_fleet(replicas=2, max_waiting=2, held=True) as bench:
        for _ in range(4):
            bench.submit()
        with pytest.raises(Refusal) as full:
            bench.submit()
        assert (full.value.problem.status, full.value.problem.code) == (429, "queue_full")
        assert full.value.problem.numbers == {"waiting": 4, "most_waiting": 4}
        assert full.value.retry_after_s is not None
        assert len(bench.fleet.rows()) == 4


async def test_a_sequence_that_outgrows_the_pool_alone_ends_with_an_error() -> None:
    async with running_fleet(replicas=1, kv_blocks=4) as bench:
        generation = bench.submit(prompt_tokens=4, max_tokens=100)
        await finished(generation)
        assert (generation.finish_reason, generation.error_code) == ("error", "kv_exhausted")
        assert len(generation.emitted) == 16 - 4 + 1
        assert bench.steps("r0")[-1].kv_used == 0


async def test_preemption_is_told_and_loses_no_token() -> None:
    async with running_fleet(replicas=1, kv_blocks=8) as bench:
        generations = [bench.submit(4, 20) for _ in range(3)]
        await finished(*generations)
        for generation in generations:
            assert generation.emitted == [FIRST_TOKEN + 4 + n for n in range(20)]
        preempted = bench.events("preempt")
        assert preempted
        assert {event.reason for event in preempted} == {"recompute"}
        assert sum(each.preemptions for each in generations) == len(preempted)
        assert bench.fleet.replica("r0").preemptions == len(preempted)
        assert [event.message for event in bench.events("admit")].count("resumed") == len(preempted)
        in_steps = [each.id for item in bench.feed if isinstance(item, Step) for each in item.preempted]
        assert in_steps == [event.request for event in preempted]


# --- while no replica is ready -----------------------------------------------------------------------------


async def test_requests_are_held_while_replicas_load_and_placed_in_order() -> None:
    async with running_fleet(replicas=1, loaded=False, max_waiting=3) as bench:
        held = [bench.submit(4, 3) for _ in range(3)]
        rows = bench.fleet.held_rows()
        assert [row.id for row in rows] == [each.id for each in held]
        assert {(row.state, row.replica, row.waiting_reason) for row in rows} == {
            ("waiting", None, "loading")
        }
        totals = bench.fleet.status().totals
        assert (totals.ready, totals.waiting, totals.waiting_reasons) == (0, 3, {"loading": 3})
        with pytest.raises(Refusal) as full:
            bench.submit()
        assert (full.value.problem.status, full.value.problem.code) == (503, "no_ready_replica")
        assert bench.fleet.cancel(held[1].id)
        assert held[1].finish_reason == "cancelled"
        bench.launcher.load_gate.set()
        await finished(held[0], held[2])
        assert bench.fleet.held_rows() == []
        assert [event.request for event in bench.events("admit")] == [held[0].id, held[2].id]


async def test_a_held_request_that_turns_out_never_to_fit_ends_with_the_reason() -> None:
    async with running_fleet(replicas=1, loaded=False) as bench:
        generation = bench.submit(prompt_tokens=500)
        bench.launcher.load_gate.set()
        await finished(generation)
        assert (generation.finish_reason, generation.error_code) == ("error", "never_fits")


async def test_a_stopping_server_takes_nothing_and_ends_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "STOP_GRACE_S", 0.05)
    async with running_fleet(replicas=1, held=True) as bench:
        quick, endless = bench.submit(4, 2), bench.submit(4, 60)
        bench.launcher.now("r0").runner.allow(3)
        await finished(quick)
        await bench.fleet.stop()
        assert (endless.finish_reason, endless.error_code) == ("cancelled", "shutting_down")
        with pytest.raises(Refusal) as refused:
            bench.fleet.submit(spec())
        assert (refused.value.problem.status, refused.value.problem.code) == (503, "draining")
        assert not bench.fleet.run_dir.exists()
