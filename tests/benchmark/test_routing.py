"""The large fleet of the bench really decides."""

from infer_engine.benchmark.routing import LargeFleet
from infer_engine.benchmark.setup import Setup


def test_a_beginning_goes_where_it_is_and_the_index_is_full() -> None:
    fleet = LargeFleet(8, 1_000)
    own = fleet.decide(fleet.own[-1])
    assert fleet.decide(fleet.behind(fleet.own[-1])) == own
    assert len(fleet.prefixes) == 1_000
    assert fleet.decide_us(fleet.fresh_prompt()) > 0
    assert Setup().repeats == 3
