"""A simulated fleet is marked on every screen, and says when the machine does not keep up."""

import dataclasses

import msgspec
import pytest
from infer_console.view.banner import banner
from infer_console.view.look import Look
from infer_console.view.pool import step_row
from infer_console.view.row import plain
from infer_console.view.simulated import simulated_mark
from infer_engine.protocol import Fleet, Simulation
from support.pictures import incident


def simulated(speed: float = 4.0, achieved: float | None = None) -> Fleet:
    simulation = Simulation(deployment="70b@4×h100", speed=speed, achieved_speed=achieved)
    return Fleet(name="drill", model="70b", simulated=True, simulation=simulation)


@pytest.mark.parametrize(
    ("fleet", "mark"),
    [
        (Fleet(name="real", model="8b"), None),
        (Fleet(name="old server", model="8b", simulated=True), "SIMULATED"),
        (simulated(), "SIMULATED ×4"),
        (simulated(0.25, 0.25), "SIMULATED ×0.25"),
        (simulated(4.0, 3.9), "SIMULATED ×4"),
        (simulated(4.0, 1.234), "SIMULATED ×4, runs ×1.2"),
        (simulated(100.0, 0.0), "SIMULATED ×100, runs ×0"),
    ],
)
def test_the_mark(fleet: Fleet, mark: str | None) -> None:
    assert simulated_mark(fleet) == mark


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_banner_never_leaves_it_out(width: int) -> None:
    picture = incident(fleet=simulated(4.0, 1.5))
    assert "SIMULATED ×4, runs ×1.5" in plain(banner(picture, Look(), width, picture.at))
    real = incident(fleet=msgspec.structs.replace(simulated(), simulated=False, simulation=None))
    assert "SIMULATED" not in plain(banner(real, Look(), width, picture.at))


@pytest.mark.parametrize("width", range(60, 121))
def test_the_count_of_steps_never_runs_into_the_number_of_gpus(width: int) -> None:
    replica = incident().replicas["r0"]
    status = msgspec.structs.replace(replica.status, simulated=True, device="4×H100")
    row = plain(step_row(dataclasses.replace(replica, status=status), width))
    assert "4×H100" not in row or "  4×H100  simulated" in row


@pytest.mark.parametrize("width", range(32, 61))
def test_the_link_never_runs_into_the_mark(width: int) -> None:
    picture = incident(fleet=simulated(1.0, 1.0))
    row = plain(banner(picture, Look(), width, picture.at))
    assert "SIMULATED ×1LIVE" not in row
    assert "SIMULATED ×1 " in row
