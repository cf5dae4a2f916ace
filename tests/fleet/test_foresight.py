"""Requests whose deadline cannot be kept are turned away at the door; those that are let in are in time."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from infer_engine.fleet.generation import Generation, Refusal
from infer_engine.protocol import Tier
from support.simulated_fleet import SimulatedBench, run, spec

SLOTS, TOKENS = 8, 50
#: A request takes about 0.24 s in a full batch: 50 steps of 4.8 ms.
DEADLINE_S = 1.0


async def flood(
    bench: SimulatedBench,
    count: int,
    rate_per_s: float,
    deadline_s: float | None,
    answers: tuple[int, ...] = (TOKENS,),
) -> tuple[list[Generation], list[Refusal]]:
    """Poisson arrivals, not slowed down by anything."""
    draw, at_s = Random(5), bench.fleet.now()
    taken: list[Generation] = []
    refused: list[Refusal] = []
    for number in range(count):
        at_s += draw.expovariate(rate_per_s)
        await asyncio.sleep(max(0.0, at_s - bench.fleet.now()))
        try:
            asked = replace(spec(20, draw.choice(answers), first=number * 100), deadline_s=deadline_s)
            taken.append(bench.fleet.submit(asked))
        except Refusal as refusal:
            refused.append(refusal)
    await bench.finished(*taken)
    return taken, refused


@pytest.mark.apart
@pytest.mark.parametrize("answers", [(TOKENS,), (25, 50, 75)])
def test_ten_times_too_many_with_deadlines_are_refused_and_not_cut(
    tmp_path: Path, answers: tuple[int, ...]
) -> None:
    async def drill(bench: SimulatedBench) -> None:
        await flood(bench, 30, 30.0, None, answers)
        began_s = bench.fleet.now()
        taken, refused = await flood(bench, 2_000, 330.0, DEADLINE_S, answers)
        took_s = bench.fleet.now() - began_s
        ends = Counter(each.finish_reason for each in taken)
        assert ends["error"] <= 0.02 * len(taken)
        # All places were busy from beginning to end.
        tokens = sum(len(each.emitted) for each in taken if each.finish_reason == "length")
        assert tokens >= 0.85 * took_s * SLOTS * TOKENS / 0.24
        assert {each.problem.code for each in refused} == {"deadline_unreachable"}
        assert all(each.problem.status == 429 for each in refused)
        assert all((each.retry_after_s or 0) >= 1 for each in refused)
        assert len(bench.events("reject")) == len(refused)
        assert len(taken) + len(refused) == 2_000
        # What comes when nobody waits any more is taken.
        assert not (await flood(bench, 1, 1.0, DEADLINE_S))[1]

    run(drill, tmp_path, simulate="8b@1xh100", replicas=1, max_running=SLOTS)


def test_without_a_deadline_nobody_is_refused_for_it(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        taken, refused = await flood(bench, 200, 330.0, None)
        assert not refused
        assert all(each.finish_reason == "length" for each in taken)

    run(drill, tmp_path, simulate="8b@1xh100", replicas=1, max_running=SLOTS)


def test_nobody_is_refused_while_nothing_was_learnt_or_a_place_is_free(tmp_path: Path) -> None:
    async def drill(bench: SimulatedBench) -> None:
        hopeless = replace(spec(20, TOKENS), deadline_s=1e-3)
        # Nobody has ended yet, so nobody can tell.
        first = [bench.fleet.submit(replace(hopeless, deadline_s=9.0)) for _ in range(3 * SLOTS)]
        await bench.finished(*first)
        # Whoever sets such a deadline is shown that it passes.
        alone = bench.fleet.submit(hopeless)
        await bench.finished(alone)
        assert alone.error_code == "deadline_exceeded"

    run(drill, tmp_path, simulate="8b@1xh100", replicas=1, max_running=SLOTS)


@pytest.mark.parametrize(("tier", "refused"), [("interactive", False), ("batch", True)])
def test_the_batch_tier_is_not_ahead_of_interactive_requests(
    tmp_path: Path, tier: Tier, refused: bool
) -> None:
    async def drill(bench: SimulatedBench) -> None:
        await bench.finished(bench.fleet.submit(spec(20, TOKENS)))
        for number in range(10 * SLOTS):
            bench.fleet.submit(spec(20, TOKENS, tier="batch", first=100 * number))
        await asyncio.sleep(0.01)
        asked = replace(spec(20, TOKENS, tier=tier), deadline_s=DEADLINE_S)
        if refused:
            with pytest.raises(Refusal, match="would take about"):
                bench.fleet.submit(asked)
        else:
            bench.fleet.submit(asked)

    run(drill, tmp_path, simulate="8b@1xh100", replicas=1, max_running=SLOTS)
