"""What the operator sees of text that may not be printed as it is."""

import pytest
from infer_console.terminal.output_filter import OutputFilter
from infer_console.terminal.safe_text import (
    SafeText,
    fit_text,
    safe,
    safe_clusters,
    safe_identifier,
    safe_multiline,
)
from infer_console.terminal.wrap import wrap


def pane(text: str) -> str:
    return "".join(cluster.text for cluster in safe_clusters(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("café — naïve", "café — naïve"),
        ("\x1b[31m", "␛[31m"),
        ("a\nb\tc\r", "a␊b␉c␍"),
        ("\x7f", "␡"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202etxt", "<202E>txt"),
        ("\ud83d", "\ufffd"),
        ("\U000e0068", "<tag>"),
        ("\ue000", "\ufffd"),
        ("東京", "<6771><4EAC>"),
        ("e\u0301", "e<0301>"),
        ("שלום", "<05E9><05DC><05D5><05DD>"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_visible_forms_in_columns(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("東京", "東京"),
        ("e\u0301", "e\u0301"),
        ("\u0301", "\u25cc\u0301"),
        ("\U0001f44d\U0001f3fd", "\U0001f44d<1F3FD>"),
        ("\u2764\ufe0f", "\u2764<FE0F>"),
        ("\U0001f1e9", "<1F1E9>"),
        ("Я ем", "Я ем"),
        ("\x1b]52;c;eA==\x07", "␛]52;c;eA==␇"),
    ],
)
def test_visible_forms_in_panes(text: str, shown: str) -> None:
    assert pane(text) == shown


def test_what_was_escaped_is_told_apart() -> None:
    assert [(str(cluster.text), cluster.escaped) for cluster in safe_clusters("a\x1bb")] == [
        ("a", False),
        ("␛", True),
        ("b", False),
    ]


def test_safe_text_is_made_by_its_functions_only() -> None:
    with pytest.raises(TypeError, match=r"safe\(\)"):
        SafeText("\x1b[2J")
    assert isinstance(safe("x"), SafeText)
    assert not isinstance(safe("x") + "\x1b", SafeText)


def test_lines_are_cut_with_a_mark() -> None:
    assert safe("abcdef", 4) == "abc…"
    assert safe("\x9b\x9b", 5) == "\\x9b…"
    assert fit_text(safe("abc"), 0) == ""
    assert safe("x" * 10_000).endswith("…")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("req-7f3a91", "req-7f3a91"),
        ("task-7@gpu-a:8080/e1", "task-7@gpu-a:8080/e1"),
        ("раураl", "<440><430><443><440><430>l"),
        ("a b", "a<20>b"),
        ("r1\x1b[2J", "r1<1B><5B>2J"),
        ("u1@[2001:db8::7]:8000", "u1@[2001:db8::7]:8000"),
        ("[::1\x1b]:80", "<5B>::1<1B><5D>:80"),
        ("[31m[/b][]", "<5B>31m<5B>/b<5D><5B><5D>"),
    ],
)
def test_an_id_cannot_pass_for_another(text: str, shown: str) -> None:
    assert safe_identifier(text) == shown


def test_an_id_has_a_length() -> None:
    assert len(safe_identifier("a" * 500)) == 64


def test_several_lines_stay_several() -> None:
    assert safe_multiline("one\n\ttwo\x1b[2J\n") == "one\n    two␛[2J\n"
    assert safe_multiline("a\nb\nc", 2) == "b\nc"


def text_of(rows: list[tuple[object, ...]]) -> list[str]:
    return ["".join(piece[0] for piece in row) for row in rows]  # type: ignore[index]


def test_wrap_breaks_between_clusters() -> None:
    assert text_of(wrap("abcdef", 4)) == ["abcd", "ef"]
    assert text_of(wrap("a東京b", 4)) == ["a東", "京b"]
    assert text_of(wrap("abe\u0301c", 3)) == ["abe\u0301", "c"]
    assert text_of(wrap("a\n\nb", 4)) == ["a", "", "b"]
    assert text_of(wrap("", 4)) == [""]


def test_wrap_keeps_the_end() -> None:
    assert text_of(wrap("one\ntwo\nthree four", 5, 2)) == ["three", " four"]
    assert wrap("x", 5, 0) == []


def test_output_filter_counts_what_it_had_to_change() -> None:
    output_filter = OutputFilter()
    assert output_filter.clean("fine ✓ 東京 e\u0301") == "fine ✓ 東京 e\u0301"
    assert output_filter.caught == 0
    assert output_filter.clean("\x1b]52;c;eA==\x07\u202e") == "\ufffd]52;c;eA==\ufffd\ufffd"
    assert output_filter.clean("e" + "\u0301" * 99) == "e" + "\u0301" * 4
    assert output_filter.caught == 2
