"""Live limits of replicas: all that are given or none, on every replica or none."""

from typing import Any

import pytest
from infer_engine.core.limits import LIMIT_NAMES
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import ChangeLimits
from support.fleets import Bench, running_fleet, until


def now(bench: Bench, replica: str) -> dict[str, int]:
    return bench.fleet.limits.now().replicas[replica]


async def change(bench: Bench, replica: str | None = None, **limits: int) -> Any:
    return await bench.fleet.limits.change(ChangeLimits(limits=limits, replica=replica))


async def test_each_limit_can_be_changed_and_old_and_new_are_told() -> None:
    async with running_fleet(replicas=2) as bench:
        await until(lambda: set(now(bench, "r0")) == set(LIMIT_NAMES), "an observation tells all")
        before = now(bench, "r0")
        wanted = {name: value - 1 for name, value in before.items() if value > 1}
        wanted["token_budget"] = 32
        assert len(wanted) >= len(LIMIT_NAMES) - 1
        moves = await change(bench, **wanted)
        assert moves == {
            replica: {name: (before[name], value) for name, value in wanted.items()}
            for replica in ("r0", "r1")
        }
        assert now(bench, "r0") == {**before, **wanted}
        loop = bench.launcher.now("r1").loop
        assert loop is not None
        assert loop.scheduler.limits.by_name() == {**before, **wanted}


async def test_one_that_does_not_fit_leaves_all_as_they_are() -> None:
    async with running_fleet(replicas=2) as bench:
        for replica in ("r0", "r1"):
            await until(lambda replica=replica: set(now(bench, replica)) == set(LIMIT_NAMES))
        before = now(bench, "r0")
        with pytest.raises(Refusal) as refused:
            await change(bench, max_waiting=7, admit_limit=17)
        assert (refused.value.problem.status, refused.value.problem.field) == (422, "admit_limit")
        assert "0 to 16 allowed" in refused.value.problem.detail
        with pytest.raises(Refusal) as refused:
            await change(bench, token_budget=3)
        assert refused.value.problem.field == "token_budget"
        with pytest.raises(Refusal) as refused:
            await change(bench, age_steps=10**30)
        assert (refused.value.problem.status, refused.value.problem.field) == (422, "age_steps")
        assert now(bench, "r0") == before
        assert now(bench, "r1") == before


@pytest.mark.parametrize("limits", [{}, {"speed": 3}, {"tenants": 1}])
async def test_unknown_names_are_refused(limits: dict[str, int]) -> None:
    async with running_fleet(replicas=1) as bench:
        with pytest.raises(Refusal) as refused:
            await change(bench, **limits)
        assert refused.value.problem.status == 422


async def test_a_smaller_batch_evicts_nobody_and_says_so() -> None:
    async with running_fleet(replicas=1, held=True) as bench:
        running = [bench.submit(4, 16) for _ in range(3)]
        await bench.step_until("r0", lambda: all(each.admitted_s is not None for each in running))
        bench.fleet.observe("r0", 50.0, blocks=False)
        bench.launcher.now("r0").runner.release()
        await until(lambda: any("3 run now" in line for line in _predicted(bench)) or running[0].finished)
        moves = await change(bench, max_running=1)
        assert moves["r0"]["max_running"] == (4, 1)
        for generation in running:
            await until(lambda generation=generation: generation.finished)
            assert (generation.finish_reason, generation.preemptions) == ("length", 0)


def _predicted(bench: Bench) -> list[str]:
    return bench.fleet.limits.predict(ChangeLimits(limits={"max_running": 1})).warnings


async def test_the_next_life_has_them_too() -> None:
    async with running_fleet(replicas=1) as bench:
        await change(bench, token_budget=48)
        bench.launcher.now("r0").kill()
        await until(lambda: len(bench.launcher.lives["r0"]) == 2)
        await until(lambda: now(bench, "r0").get("token_budget") == 48)
