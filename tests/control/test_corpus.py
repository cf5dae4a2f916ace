"""Test traffic is varied, the same for the same seed, and arrives at the asked rate."""

from itertools import islice
from random import Random

import pytest
from infer_engine.control.corpus import PROFILES, Profile, arrivals, compose


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_asks_the_same(profile: Profile) -> None:
    first, second = Random(3), Random(3)
    assert [compose(profile, first, 512) for _ in range(50)] == [
        compose(profile, second, 512) for _ in range(50)
    ]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("room_tokens", [64, 512, 8192])
def test_every_request_fits_its_room(profile: Profile, room_tokens: int) -> None:
    random = Random(1)
    asks = [compose(profile, random, room_tokens) for _ in range(200)]
    assert all(
        1 <= ask.max_tokens <= (1024 if profile == "long-answer" else 128) and ask.prompt_tokens >= 1
        for ask in asks
    )
    assert all(ask.max_tokens + ask.prompt_tokens <= room_tokens for ask in asks)
    assert len({ask.text for ask in asks}) > 50


def test_long_context_is_long() -> None:
    random = Random(1)
    texts = [compose("long-context", random, 4096).text for _ in range(20)]
    assert min(len(text.split()) for text in texts) > 400


@pytest.mark.parametrize("profile", PROFILES)
def test_arrivals_keep_the_asked_rate(profile: Profile) -> None:
    gaps = list(islice(arrivals(profile, Random(5), 20.0), 10_000))
    assert 400 < sum(gaps) < 600


def test_a_burst_arrives_at_once() -> None:
    gaps = list(islice(arrivals("burst", Random(5), 4.0), 100))
    assert gaps.count(0.0) == 95
