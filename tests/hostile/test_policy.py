"""The safe-text policy against the corpus and against whatever hypothesis makes of it."""

import unicodedata

import pytest
from hostile.corpus import CORPUS, FORBIDDEN, SHORT, hostile_text
from hypothesis import example, given, settings
from hypothesis import strategies as st
from infer_console.terminal.output_filter import OutputFilter
from infer_console.terminal.safe_text import (
    MAX_CELLS,
    MAX_MARKS,
    SafeText,
    safe,
    safe_clusters,
    safe_identifier,
    safe_multiline,
)
from infer_console.terminal.wrap import wrap
from rich.cells import cell_len
from wcwidth import wcwidth

FEW = settings(max_examples=150, deadline=None)


def assert_printable(text: str) -> None:
    found = FORBIDDEN.intersection(text)
    assert not found, sorted(hex(ord(character)) for character in found)
    assert OutputFilter().clean(text) == text


def longest_run_of_marks(text: str) -> int:
    longest = run = 0
    for character in text:
        run = (
            run + 1
            if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me")
            else 0
        )
        longest = max(longest, run)
    return longest


@pytest.mark.parametrize("text", CORPUS, ids=lambda text: ascii(text[:16]))
def test_corpus_member_is_printable_in_columns_panes_and_ids(text: str) -> None:
    shown = safe(text)
    assert isinstance(shown, SafeText)
    assert_printable(shown)
    assert cell_len(shown) == len(shown) <= MAX_CELLS
    assert_printable(safe_identifier(text))
    assert safe_identifier(text).isascii() or safe_identifier(text).endswith("…")
    for row in wrap(text, 40, 50):
        assert_printable("".join(piece.text for piece in row))
        assert sum(piece.cells for piece in row) <= 40
    for line in safe_multiline(text, 50).split("\n"):
        assert_printable(line)


@FEW
@given(hostile_text(), st.integers(0, 60))
def test_columns_are_one_cell_a_character(text: str, limit: int) -> None:
    shown = safe(text, limit)
    assert_printable(shown)
    assert len(shown) == cell_len(shown) == sum(wcwidth(character) for character in shown)
    assert len(shown) <= limit


@FEW
@given(hostile_text())
def test_safe_text_is_safe_again_unchanged(text: str) -> None:
    assert safe(safe(text)) == safe(text)


@FEW
@given(hostile_text(), st.integers(0, 500))
def test_no_split_of_a_stream_smuggles_anything_past(text: str, at: int) -> None:
    first, second = text[:at], text[at:]
    assert_printable(safe(first) + safe(second))
    pane = "".join(cluster.text for part in (first, second) for cluster in safe_clusters(part))
    assert_printable(pane)
    assert longest_run_of_marks(pane) <= MAX_MARKS


@FEW
@example("\t\U0001f1e6\U0001f1e6", 11, 12)
@given(hostile_text(), st.integers(1, 90), st.integers(1, 12))
def test_wrapped_rows_keep_their_width(text: str, width: int, rows: int) -> None:
    wrapped = wrap(text, width, rows)
    assert len(wrapped) <= rows
    for row in wrapped:
        assert sum(piece.cells for piece in row) <= width
        for piece in row:
            assert_printable(piece.text)
            assert piece.cells == sum(wcwidth(character) for character in piece.text)


@pytest.mark.parametrize("text", SHORT, ids=lambda text: ascii(text[:16]))
def test_every_split_point_of_a_corpus_member(text: str) -> None:
    for at in range(len(text) + 1):
        assert_printable(safe(text[:at]) + safe(text[at:]))


def test_every_printed_character_has_one_undisputed_width() -> None:
    """All assigned characters (of the ideograph blocks every 61st): what a pane prints as itself is as wide
    for us as it is in the tables of other programs."""
    printed = 0
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs") or (category == "Lo" and code >= 0x3400 and code % 61):
            continue
        first = next(safe_clusters(character))
        if not first.escaped:
            printed += 1
            expected = 0 if category in ("Mn", "Me") else first.cells
            assert wcwidth(character) == expected, hex(code)
    assert printed > 10_000


def test_a_million_characters_cost_what_is_shown() -> None:
    assert len(safe("\x1b" * 1_000_000)) == MAX_CELLS
    assert len(wrap("y\n" * 500_000, 80, 40)) == 40
    clusters = list(safe_clusters("e" + "\u0301" * 200_000))
    assert [cluster.text for cluster in clusters] == ["e" + "\u0301" * MAX_MARKS, "<+marks>"]
