"""Fleets under fire, thousands of them: clients, faults and two operators at once, each drawn from one seed.
``campaign.py --what fleet`` runs more of them and replays one that fails."""

import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest
from infer_engine.fleet import placing
from infer_engine.fleet.tracked import Tracked
from infer_engine.replica.messages import Submit
from simulation.campaign import SCRIPT, Report
from simulation.conftest import AT_MOST_S, SCENARIOS
from simulation.fleet.operators import VERBS
from simulation.fleet.scenario import Scenario
from simulation.fleet.tally import FleetTally
from simulation.simulate import SimulationError
from simulation.test_simulation import scarce

REPLAYED = (10, 11)


@pytest.mark.timeout(AT_MOST_S + 100)
def test_every_scenario_holds(fleet_report: Report[FleetTally]) -> None:
    assert fleet_report.failures == []
    assert sorted(fleet_report.digests) == list(range(SCENARIOS))


@pytest.mark.timeout(AT_MOST_S + 100)
def test_they_reach_what_they_are_meant_to_reach(fleet_report: Report[FleetTally]) -> None:
    tally = fleet_report.tally
    ends = ("length", "stop", "deadline_exceeded", "cancelled_by_operator", "client_disconnected")
    assert scarce(tally.finished, ends, 500) == {}
    rare_ends = ("replica_suspect", "replica_draining", "no_ready_replica", "replica_lost")
    assert scarce(tally.finished, rare_ends, 20) == {}
    assert scarce(tally.accepted, list(VERBS), 100) == {}
    refusals = ("stale_version", "version_required", "would_break_min_ready", "in_progress", "not_ready")
    assert scarce(tally.denied, refusals, 100) == {}
    assert scarce(tally.faults, ("crash", "kill", "freeze", "hiccup", "undead"), 300) == {}
    assert scarce(tally.moved, ("draining", "fenced", "preempted", "replica_lost", "rebalanced"), 50) == {}
    states = ("ready", "draining", "drained", "fenced", "failed", "restarting", "removed")
    assert scarce(tally.states, states, 500) == {}
    reverts = ("headroom-revert succeeded", "limits-revert succeeded", "tenant-revert succeeded")
    assert scarce(tally.operations, reverts, 50) == {}
    assert min(tally.requests, tally.moves, tally.writes, tally.late_messages) > 5_000
    assert min(tally.restarts, tally.left) > 200


@pytest.mark.timeout(AT_MOST_S + 100)
@pytest.mark.parametrize("seed", REPLAYED)
def test_a_scenario_replays_alike_in_another_process(fleet_report: Report[FleetTally], seed: int) -> None:
    here = Scenario(seed)
    here.run()
    assert here.digest == fleet_report.digests[seed]


def test_a_scenario_that_fails_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sequence that goes on elsewhere, the last token is forgotten."""
    honest: Callable[..., Submit] = placing._submit_message  # pyright: ignore[reportPrivateUsage]

    def forgetful(request: Tracked, now_s: float, fork_of: str | None) -> Submit:
        message = honest(request, now_s, fork_of)
        del message.emitted[-1:]
        return message

    monkeypatch.setattr(placing, "_submit_message", forgetful)
    with pytest.raises(SimulationError, match=r"fleet seed \d+: .*\nreplay: make simulate WHAT=fleet SEED="):
        run_all(range(20))


def run_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        Scenario(seed).run()


def test_a_replayed_scenario_prints_its_digest() -> None:
    command = [sys.executable, str(SCRIPT), "--what", "fleet", "--seed", "7"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    here = Scenario(7)
    here.run()
    assert printed.split()[-1] == f"{here.digest:08x}"
