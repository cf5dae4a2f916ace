"""Commands and the routes that carry them."""

import random

import pytest
from infer_console.sources.backoff import LONGEST_S, SHORTEST_S, Backoff
from infer_console.sources.routes import command_route
from infer_engine.protocol import Cancel, Command, Drain, Inject, Preempt, SetHeadroom, StopInjection, Undrain


@pytest.mark.parametrize(
    ("command", "target", "route"),
    [
        (Drain(), "r0", ("POST", "/control/v1/replicas/r0:drain")),
        (Undrain(), "r0", ("POST", "/control/v1/replicas/r0:undrain")),
        (Cancel(), "7f-1", ("POST", "/control/v1/requests/7f-1:cancel")),
        (Preempt(to="r1"), "7f-1", ("POST", "/control/v1/requests/7f-1:preempt")),
        (SetHeadroom(percent=1.0), None, ("POST", "/control/v1/headroom")),
        (Inject(), None, ("POST", "/control/v1/injections")),
        (StopInjection(), None, ("DELETE", "/control/v1/injections")),
    ],
)
def test_every_command_has_its_route(command: Command, target: str | None, route: tuple[str, str]) -> None:
    assert command_route(command, target) == route


def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    method, path = command_route(Cancel(), "../replicas/r0:drain?x#y")
    assert (method, path) == ("POST", "/control/v1/requests/..%2Freplicas%2Fr0%3Adrain%3Fx%23y:cancel")


def test_a_command_that_needs_a_target_does_not_go_out_without() -> None:
    with pytest.raises(ValueError, match="Drain needs a target"):
        command_route(Drain(), None)


def test_pauses_grow_to_a_limit_are_drawn_anew_and_start_over() -> None:
    backoff = Backoff(random.Random(1))
    pauses = [backoff.next_s() for _ in range(50)]
    assert all(SHORTEST_S <= pause <= LONGEST_S for pause in pauses)
    assert pauses[0] == SHORTEST_S
    assert max(pauses[10:]) > LONGEST_S / 2
    assert len(set(pauses[10:])) > 30
    backoff.reset()
    assert backoff.next_s() == SHORTEST_S
