"""The core under random fire, on two cores. ``campaign.py`` beside this file runs longer and replays a
failing seed."""

import subprocess
import sys
from collections import Counter
from typing import get_args

import pytest
from infer_engine.core.limits import LimitChanges
from infer_engine.protocol import WaitingReason
from simulation.campaign import SCRIPT, Report
from simulation.core_modules import mutated
from simulation.simulate import STEPS, Simulation, SimulationError
from simulation.states import STATES
from simulation.tally import Tally

SEEDS = 240
#: How long the campaign may take, beside everything else.
AT_MOST_S = 1_500.0
#: Seeds that are replayed here: of both workers, each with a hash seed of its own.
REPLAYED = (10, 11)


@pytest.mark.timeout(AT_MOST_S + 100)
def test_every_rule_holds_after_every_step_of_every_seed(report: Report[Tally]) -> None:
    assert report.failures == []
    assert sorted(report.digests) == list(range(SEEDS))
    assert report.tally.seeds >= 200
    assert report.tally.steps >= 1_000_000


@pytest.mark.timeout(AT_MOST_S + 100)
def test_the_fire_reaches_what_it_is_meant_to_reach(report: Report[Tally]) -> None:
    tally = report.tally
    assert scarce(tally.finished, ("stop", "length", "cancelled", "error"), 10_000) == {}
    refusals = ("never_fits", "duplicate_id", "queue_full", "admission_closed")
    assert scarce(tally.refused, refusals, 1_000) == {}
    assert scarce(tally.aborted, [*STATES, *(f"{state}, in flight" for state in STATES)], 100) == {}
    assert scarce(tally.passed, STATES, 10) == {}
    assert scarce(tally.handed_back, ("waiting", "continued", "preempted", "swapped"), 50) == {}
    ways = ("must swap", "must recompute", "chose swap", "chose recompute", "by force", "fork")
    assert scarce(tally.preempted, ways, 1_000) == {}
    assert scarce(tally.changed, [*LimitChanges.__annotations__, "refused"], 1_000) == {}
    held_by_the_server = {"draining", "loading"}
    reasons = set(get_args(WaitingReason)) - held_by_the_server
    assert tally.reasons.keys() == reasons
    assert scarce(tally.reasons, list(reasons), 1_000) == {}
    assert min(tally.hit_tokens, tally.evicted_blocks) > 100_000
    assert min(tally.swapped_in_blocks, tally.copied_blocks, tally.forks) > 1_000
    assert min(tally.aged, tally.yields, tally.late, tally.admitted_past_a_head, tally.closed) > 1_000


def scarce(counts: Counter[str], wanted: tuple[str, ...] | list[str], least: int) -> dict[str, int]:
    return {name: counts[name] for name in wanted if counts[name] < least}


@pytest.mark.timeout(AT_MOST_S + 100)
@pytest.mark.parametrize("seed", REPLAYED)
def test_a_seed_replays_bit_identically_in_another_process(report: Report[Tally], seed: int) -> None:
    here = Simulation(seed)
    here.run(STEPS)
    assert here.digest == report.digests[seed]
    assert len(set(report.digests.values())) == len(report.digests), "seeds make a difference"


def test_a_failing_seed_says_how_to_replay_it() -> None:
    with mutated("scheduler", "request.output.append(token)", "request.output.append(token + 1)") as core:
        simulation = Simulation(3, core)
        with pytest.raises(SimulationError, match=r"lost or repeated.*\nreplay: make .* SEED=3 STEPS=50"):
            simulation.run(50)


def test_a_replayed_seed_prints_its_digest() -> None:
    command = [sys.executable, str(SCRIPT), "--seed", "7", "--steps", "50"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    here = Simulation(7)
    here.run(50)
    assert printed.split()[-1] == f"{here.digest:08x}"
