"""What other limits mean, in words that the figures bear out."""

from infer_engine.fleet.limits_effect import Load, meaning

BEFORE = {"token_budget": 2_048, "max_running": 24, "max_long_prefills": 2, "long_prefill_tokens": 1_024}
LOAD = Load(running=10, decoding=8, waiting=5, longest_step_s=0.4)


def test_a_smaller_budget_takes_more_steps_and_none_is_longer() -> None:
    steps, longest = meaning(LOAD, BEFORE, {"token_budget": 256})
    assert "4,096 tokens takes at least 17 steps (now 3)" in steps
    assert "400 ms, of at most 2,048 tokens" in longest
    assert "of at most 256 none is longer" in longest
    assert "may take longer" in meaning(LOAD, BEFORE, {"token_budget": 4_096})[1]
    idle = meaning(LOAD._replace(decoding=0), BEFORE, {"token_budget": 256})
    assert idle[0] == "a prompt of 4,096 tokens takes at least 16 steps (now 2)"
    assert len(meaning(LOAD._replace(longest_step_s=None), BEFORE, {"token_budget": 256})) == 1


def test_a_batch_size_tells_who_gets_in() -> None:
    assert meaning(LOAD, BEFORE, {"max_running": 12}) == [
        "2 places are free beside the 10 that run: at most 2 of the 5 that wait get in, as the KV has room"
    ]
    assert "who finds none waits" in meaning(LOAD._replace(waiting=0), BEFORE, {"max_running": 12})[0]
    assert meaning(LOAD, BEFORE, {"max_running": 8}) == []


def test_what_stays_as_it_is_means_nothing_new() -> None:
    assert meaning(LOAD, BEFORE, {"token_budget": 2_048}) == []
    assert "more than 1,024 tokens" in meaning(LOAD, BEFORE, {"max_long_prefills": 1})[0]
