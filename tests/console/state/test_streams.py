"""Stream tails stay bounded and say what they dropped."""

from infer_console.state.streams import MAX_CHARS, StreamTail
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
