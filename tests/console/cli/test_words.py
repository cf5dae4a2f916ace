"""Words of the command line within their bounds, and what is said of those beyond."""

from argparse import ArgumentTypeError

import pytest
from infer_console.cli.words import duration, whole


@pytest.mark.parametrize(
    ("given", "seconds"), [("1", 1.0), ("90s", 90.0), ("1h30m", 5_400.0), ("2h", 7_200.0)]
)
def test_a_duration_in_seconds(given: str, seconds: float) -> None:
    assert duration(1.0, 7_200.0)(given) == seconds


@pytest.mark.parametrize("given", ["0.9s", "2h1s", "soon", "", "-5s"])
def test_another_is_refused_with_what_is_allowed(given: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        duration(1.0, 7_200.0)(given)
    assert str(refused.value) == f"{given!r} was given, allowed is a duration like 30s or 5m, from 1s to 2h"


@pytest.mark.parametrize("given", ["1", "007", "100"])
def test_a_whole_number(given: str) -> None:
    assert whole(1, 100)(given) == int(given)


@pytest.mark.parametrize("given", ["0", "101", "1.0", "+5", "٣", "", "000000001000000"])
def test_another_number_is_refused(given: str) -> None:
    with pytest.raises(ArgumentTypeError, match="allowed is a whole number from 1 to 100"):
        whole(1, 100)(given)
