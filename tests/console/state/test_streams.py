"""Stream tails stay bounded and say what they dropped."""

from infer_console.state.streams import MAX_CHARS, MAX_TOKENS, TOKENS_AT_ONCE, StreamTail
from infer_engine.protocol import TokenDelta


def test_a_long_stream_keeps_its_tail_and_counts_the_rest() -> None:
    tail = StreamTail("a")
    whole = ""
    for index in range(200):
        text = f"{index:04d}" * 250
        whole += text
        tail.apply(TokenDelta(request="a", index=index, text=text, at=0.0, itl_s=0.01 * index))
    shown = tail.picture()
    assert shown.text == whole[-MAX_CHARS:]
    assert shown.dropped_chars == len(whole) - MAX_CHARS
    assert (shown.tokens, shown.last_itl_s) == (200, 0.01 * 199)
    assert tail.picture() is shown


def test_a_delta_that_was_seen_changes_nothing_and_one_further_on_is_taken() -> None:
    tail = StreamTail("a")
    tail.apply(TokenDelta(request="a", index=0, text="one ", at=0.0))
    tail.apply(TokenDelta(request="a", index=0, text="one ", at=0.0))
    tail.apply(TokenDelta(request="a", index=5, text="six", at=0.0))
    assert (tail.picture().text, tail.picture().tokens) == ("one six", 6)


def test_a_request_that_the_server_forgot_has_ended() -> None:
    tail = StreamTail("a")
    tail.gone()
    assert tail.ended
    assert tail.picture().finish_reason == "gone"


def test_the_times_of_tokens_are_kept_by_token_and_bounded() -> None:
    tail = StreamTail("a")
    index = 0
    while index < MAX_TOKENS + 500:
        gaps_s = [0.5 if number else None for number in range(index, index + 10)]
        tail.apply(
            TokenDelta(
                request="a",
                index=index,
                text="x" * 20,
                at=100.0 + 0.5 * (index + 9),
                tokens=10,
                gaps_s=gaps_s,
                characters=[2] * 10,
            ),
            heard_at=7.0,
        )
        index += 10
    shown = tail.picture()
    assert MAX_TOKENS - TOKENS_AT_ONCE < len(shown.gaps_s) <= MAX_TOKENS
    assert len(shown.gaps_s) == len(shown.ats) == len(shown.characters)
    assert shown.ats[-1] == 100.0 + 0.5 * (index - 1)
    assert shown.ats[-1] - shown.ats[0] == 0.5 * (len(shown.ats) - 1)
    assert shown.heard_at == 7.0


def test_tokens_that_were_missed_end_what_was_next_to_them() -> None:
    tail = StreamTail("a")
    tail.apply(TokenDelta(request="a", index=0, text="one ", at=1.0, gaps_s=[None], characters=[4]))
    tail.apply(TokenDelta(request="a", index=5, text="six", at=9.0, gaps_s=[0.1], characters=[3]))
    assert tail.picture().gaps_s == (0.1,)


def test_bytes_that_waited_are_the_last_tokens() -> None:
    tail = StreamTail("a")
    tail.apply(
        TokenDelta(request="a", index=0, text="ab", at=1.0, tokens=2, gaps_s=[None, 0.1], characters=[2, 0])
    )
    tail.apply(TokenDelta(request="a", index=2, text="!", at=1.0, tokens=0, finish_reason="stop"))
    assert tail.picture().characters == (2, 1)


def test_a_server_that_tells_no_gaps_has_the_last_one() -> None:
    tail = StreamTail("a")
    tail.apply(TokenDelta(request="a", index=0, text="abc", at=1.0, tokens=3, itl_s=0.2))
    assert tail.picture().gaps_s == (None, None, 0.2)
