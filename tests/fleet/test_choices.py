"""Several choices of one request in a fleet: beside one another where they can be, on their own otherwise."""

from dataclasses import replace

import pytest
from infer_engine.fleet import lifecycle
from infer_engine.fleet.generation import Refusal
from support.fleets import finished, running_fleet, spec, until


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_BACKOFF_S", 0.01)


async def test_choices_go_where_their_prompt_is_and_share_its_blocks() -> None:
    async with running_fleet(replicas=2, held=True, kv_blocks=32) as bench:
        observer = bench.fleet.observe("r0", 20.0, blocks=True)
        choices = bench.fleet.submit_choices([spec(10, 6)] * 4)
        assert len({each.replica for each in choices}) == 1
        replica = choices[0].replica
        assert replica is not None
        await bench.step_until(replica, lambda: choices[0].emitted)
        scheduler = bench.launcher.now(replica).loop.scheduler  # type: ignore[union-attr]
        assert scheduler.counters.forks == 3
        bench.launcher.now(replica).runner.release()
        await finished(*choices)
        assert {each.finish_reason for each in choices} == {"length"}
        assert len({tuple(each.emitted) for each in choices}) == 1
        assert len({each.id for each in choices}) == 4
        observer.close()


async def test_choices_of_a_replica_that_dies_before_it_could_share_start_over_together() -> None:
    async with running_fleet(replicas=2, held=True, token_budget=4) as bench:
        choices = bench.fleet.submit_choices([spec(10, 3)] * 3)
        first = choices[0].replica
        assert first is not None
        await bench.heard(first, 3)
        bench.launcher.held = False
        other = next(each for each in bench.fleet.replica_ids() if each != first)
        bench.launcher.now(other).runner.release()
        bench.launcher.now(first).kill()
        await finished(*choices)
        assert [each.finish_reason for each in choices] == ["length"] * 3
        assert len({tuple(each.emitted) for each in choices}) == 1


async def test_the_end_of_one_leaves_the_others() -> None:
    async with running_fleet(replicas=1, held=True, token_budget=4) as bench:
        choices = bench.fleet.submit_choices([spec(10, 5)] * 3)
        await bench.heard("r0", 3)
        bench.fleet.cancel(choices[0].id)
        bench.fleet.cancel(choices[1].id, reason="stop")
        bench.launcher.now("r0").runner.release()
        await finished(*choices)
        assert [each.finish_reason for each in choices] == ["cancelled", "stop", "length"]
        await until(lambda: not bench.fleet.rows(), "an empty fleet")


async def test_all_are_taken_or_none() -> None:
    async with running_fleet(replicas=1, held=True, max_waiting=2, max_running=1) as bench:
        running = bench.submit(4, 4)
        await bench.one_step("r0")
        with pytest.raises(Refusal) as refused:
            bench.fleet.submit_choices([spec(4, 4)] * 4)
        assert refused.value.problem.code == "queue_full"
        bench.launcher.now("r0").runner.release()
        await finished(running)
        await until(lambda: not bench.fleet.rows(), "an empty fleet")


async def test_a_choice_whose_first_is_gone_is_a_request_like_any_other() -> None:
    async with running_fleet(replicas=1) as bench:
        alone = bench.fleet.submit(replace(spec(4, 3), fork_of="nobody"))
        await finished(alone)
        assert alone.finish_reason == "length"
