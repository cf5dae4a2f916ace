"""The core under random fire. ``simulate.py`` beside this file runs longer and replays a failing seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.simulate import Simulation, SimulationError, Tally

SEEDS = 42
TICKS = 2000


@pytest.fixture(scope="module")
def tally() -> Tally:
    """All seeds once; a broken rule raises with the command that replays it."""
    total = Tally()
    for seed in range(SEEDS):
        total.add(Simulation(seed).run(TICKS))
    return total


def test_every_rule_holds_after_every_step_of_every_seed(tally: Tally) -> None:
    assert tally.steps >= 55_000


def test_the_fire_reaches_what_it_is_meant_to_reach(tally: Tally) -> None:
    assert tally.preemptions > 500
    assert min(tally.finished[reason] for reason in ("stop", "length", "cancelled", "error")) > 100
    assert tally.admitted_past_a_head > 100
    assert set(tally.reasons) == {"kv", "headroom", "slots", "token_budget", "behind", "tier"} | {
        "tenant",
        "long_prefill",
    }
    assert set(tally.refused) == {"never_fits", "duplicate_id", "queue_full", "admission_closed"}
    assert tally.handed_back_with_tokens > 5
    assert min(tally.hit_tokens, tally.evicted_blocks) > 10_000
    assert tally.copied_blocks > 500
    assert tally.forks > 250
    assert min(tally.aged, tally.yields) > 100
    assert tally.late > 100
    assert min(tally.swaps, tally.swapped_in_blocks, tally.preemptions - tally.swaps) > 100


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    script = Path(__file__).with_name("simulate.py")
    done = subprocess.run(
        [sys.executable, str(script), "--seed", str(seed), "--steps", "300"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()[-1]


def test_a_seed_replays_bit_identically_in_any_process() -> None:
    here = Simulation(11)
    here.run(300)
    assert digest_in_another_process(11, "1") == digest_in_another_process(11, "2") == f"{here.digest:08x}"
    other = Simulation(12)
    other.run(300)
    assert other.digest != here.digest


def test_a_failing_seed_says_how_to_replay_it() -> None:
    simulation = Simulation(3)
    simulation.runner.execute = lambda plan: {}  # type: ignore[method-assign]
    with pytest.raises(SimulationError, match=r"simulate\.py --seed 3 --steps 50"):
        simulation.run(50)
