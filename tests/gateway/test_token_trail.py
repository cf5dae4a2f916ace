"""Tokens are told when their text is out, and not before."""

from hypothesis import given, settings
from hypothesis import strategies as st
from infer_engine.gateway.token_trail import TokenTrail
from infer_engine.model.logprobs import TokenLogprobs

NOTHING = TokenLogprobs(0.0)


@given(texts=st.lists(st.text(max_size=3), max_size=12), releases=st.lists(st.integers(0, 30), max_size=6))
@settings(deadline=None, max_examples=60)
def test_the_trail_tells_each_token_once_in_order_and_not_too_early(
    texts: list[str], releases: list[int]
) -> None:
    trail = TokenTrail()
    told: list[int] = []
    ends: list[int] = []
    for token, text in enumerate(texts):
        trail.push(token, text, NOTHING)
        ends.append(sum(map(len, texts[: token + 1])))
    for released in sorted(releases):
        now = [each.token for each in trail.release(released)]
        assert all(ends[token] <= released for token in now)
        told += now
    told += [each.token for each in trail.finish(None)]
    assert told == list(range(len(texts)))


def test_what_begins_behind_a_stop_string_is_not_told() -> None:
    trail = TokenTrail()
    for token, text in enumerate(["ab", "cS", "", "TO", "P"]):
        trail.push(token, text, NOTHING)
    assert [each.token for each in trail.release(2)] == [0]
    assert [(each.token, each.offset) for each in trail.finish(3)] == [(1, 2)]
