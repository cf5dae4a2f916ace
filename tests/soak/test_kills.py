"""In small what ``kills.py`` does for as long as one likes: no stream breaks, none differs, nothing leaks."""

import pytest
from soak.kills import run


@pytest.mark.timeout(600)
def test_ten_kills_under_thirty_two_streams_break_none() -> None:
    outcome = run(10, streams=32, max_tokens=60)
    assert (outcome.faults, outcome.leaked_blocks, outcome.kills) == ([], 0, 10)
    assert outcome.streams >= 32
    assert outcome.moves > 10


@pytest.mark.timeout(300)
def test_a_drain_moves_long_generations_and_is_done_before_they_are() -> None:
    outcome = run(0, streams=32, max_tokens=400)
    assert (outcome.faults, outcome.leaked_blocks) == ([], 0)
    assert outcome.moves >= 8
