"""Stop strings across token boundaries: what comes out must not depend on where the text was cut."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from infer_engine.gateway.stop_text import StopText

#: A small alphabet, so that overlaps and false starts are the rule.
TEXT = st.text(alphabet="ab\n", max_size=24)
STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=6), max_size=4).map(tuple)


def reference(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The first stop string to complete ends the text where it began; of two that complete at once, the
    longer."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def run(pieces: list[str], stops: tuple[str, ...]) -> tuple[str, str | None]:
    holder = StopText(stops)
    out = "".join(holder.push(piece) for piece in pieces)
    return out + holder.flush(), holder.matched


@settings(max_examples=400)
@given(text=TEXT, stops=STOPS, cuts=st.sets(st.integers(0, 24)))
@example(text="aab", stops=("aab", "ab"), cuts={1, 2})
@example(text="ababb", stops=("abb",), cuts={1, 2, 3, 4})
def test_equals_the_reference_wherever_the_text_is_cut(
    text: str, stops: tuple[str, ...], cuts: set[int]
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert run(pieces, stops) == reference(text, stops)


@settings(max_examples=200)
@given(text=TEXT, stops=STOPS)
def test_nothing_let_out_is_ever_taken_back_and_as_little_as_possible_is_held(
    text: str, stops: tuple[str, ...]
) -> None:
    holder = StopText(stops)
    released = ""
    for position, char in enumerate(text):
        released += holder.push(char)
        if holder.matched is not None:
            break
        seen = text[: position + 1]
        held = seen[len(released) :]
        assert seen == released + held
        # Held text is the longest that may still become a stop string, and nothing more.
        could_become = [
            n for n in range(1, len(seen) + 1) if any(stop.startswith(seen[-n:]) for stop in stops)
        ]
        assert len(held) == max(could_become, default=0)


@pytest.mark.parametrize("offset", range(len("…STOP now") + 1))
def test_every_split_of_one_stop_string(offset: int) -> None:
    text = "…STOP now"
    assert run([text[:offset], text[offset:]], ("STOP",)) == ("…", "STOP")


def test_without_stop_strings_text_passes_untouched() -> None:
    holder = StopText(())
    assert holder.push("anything") == "anything"
    assert holder.flush() == ""


def test_after_a_match_nothing_comes_out() -> None:
    holder = StopText(("x",))
    assert holder.push("axb") == "a"
    assert (holder.push("more"), holder.flush()) == ("", "")
