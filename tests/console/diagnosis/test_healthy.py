"""Ten healthy fleets, a simulated hour in all: nobody is woken. ``healthy_hours.py`` has an hour of each, and
busier ones."""

import pytest
from console.diagnosis.healthy_hours import healthy

SECONDS = 360


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_where_nothing_is_wrong(seed: int) -> None:
    ward = healthy(seed, 0.15, SECONDS)
    assert len(ward.found) == SECONDS
    # Users may leave, but nothing goes wrong.
    assert {event.reason for event in ward.bench.events("finish")} - {"cancelled"} == {"length"}
    assert ward.rules() == set(), ward.story()
