"""Test traffic is varied, the same for the same seed, and arrives at the asked rate."""

from itertools import islice

import pytest
from infer_engine.control.arrivals import open_loop, recorded
from infer_engine.control.profiles import PROFILES, SHARED_DOCUMENTS, Ask, Profile, asks, traced
from infer_engine.control.prompts import Prompts
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import TraceRequest

MADE = tuple(profile for profile in PROFILES if profile != "trace")
TRACE = [
    TraceRequest(arrival_s=0.0, prompt_tokens=700, output_tokens=5),
    TraceRequest(arrival_s=0.5, prompt_tokens=1, output_tokens=40, tier="batch"),
    TraceRequest(arrival_s=0.5, prompt_tokens=33, output_tokens=1),
]


def some(profile: Profile, count: int = 200, room: int = 4_096, seed: int = 1) -> list[Ask]:
    return list(islice(asks(profile, seed, room), count))


def moments(seed: int, rate: float, count: int, *, bursts: bool = False) -> list[float]:
    return list(islice(open_loop(seed, rate, bursts=bursts), count))


def test_arrivals_are_those_of_their_seed() -> None:
    assert [round(at_s, 3) for at_s in moments(7, 2.0, 5)] == [2.038, 2.658, 2.697, 3.397, 3.563]
    assert moments(7, 2.0, 100) == moments(7, 2.0, 100) != moments(8, 2.0, 100)


@pytest.mark.parametrize("bursts", [False, True])
def test_arrivals_keep_the_asked_rate(bursts: bool) -> None:
    assert 400 < moments(5, 20.0, 10_000, bursts=bursts)[-1] < 600


def test_a_burst_arrives_at_once() -> None:
    found = moments(5, 4.0, 100, bursts=True)
    assert len(set(found)) == 5
    assert found == sorted(found)


@pytest.mark.parametrize("profile", MADE)
def test_the_same_seed_asks_the_same(profile: Profile) -> None:
    assert some(profile, seed=3) == some(profile, seed=3) != some(profile, seed=4)


@pytest.mark.parametrize("profile", MADE)
@pytest.mark.parametrize("room_tokens", [64, 512, 8192])
def test_every_request_fits_its_room(profile: Profile, room_tokens: int, tokenizer: Tokenizer) -> None:
    prompts = Prompts(tokenizer)
    for ask in some(profile, 60, room_tokens):
        prompt = prompts.build(ask)
        assert 1 <= len(prompt) <= ask.most_prompt_tokens
        assert len(prompt) + ask.max_tokens <= room_tokens
        assert ask.max_tokens >= 1


def test_profiles_ask_what_they_say(tokenizer: Tokenizer) -> None:
    prompts = Prompts(tokenizer)

    def lengths(profile: Profile) -> list[int]:
        return [len(prompts.build(ask)) for ask in some(profile, 40)]

    assert max(lengths("chat")) < 500 < min(lengths("long-context"))
    assert min(ask.max_tokens for ask in some("long-answer")) >= 256
    assert {ask.tier for ask in some("batch-backfill")} == {"batch"}
    assert {ask.tier for ask in some("mixed")} == {"interactive", "batch"}
    assert len({ask.document for ask in some("long-context")}) == 200
    shared = some("shared-prefix")
    assert len({ask.document for ask in shared}) == SHARED_DOCUMENTS
    begins = {prompts.build(ask)[: shared[0].document_tokens] for ask in shared}
    assert len(begins) == SHARED_DOCUMENTS, "what is shared is shared from the first token on"
    assert len({prompts.build(ask) for ask in shared}) > 100


def test_a_recording_is_played_as_it_was(tokenizer: Tokenizer) -> None:
    prompts = Prompts(tokenizer)
    assert list(recorded(TRACE)) == [0.0, 0.5, 0.5]
    played = list(traced(TRACE, 1))
    assert [len(prompts.build(ask)) for ask in played] == [700, 1, 33]
    assert [ask.max_tokens for ask in played] == [5, 40, 1]
    assert [ask.tier for ask in played] == ["interactive", "batch", "interactive"]


def test_a_prompt_is_the_models_own_chat(tokenizer: Tokenizer) -> None:
    ask = some("chat", 1)[0]
    chat = tokenizer.chat_prompt([{"role": "user", "content": ask.question}])
    assert list(Prompts(tokenizer).build(ask)) == chat
