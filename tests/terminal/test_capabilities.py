"""What the environment tells of a terminal, and what is made of it."""

import ast
from pathlib import Path

import infer_console
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infer_console.terminal.attention import BELL, KEEP_TITLE, PUT_TITLE_BACK, Attention, title_sequence
from infer_console.terminal.capabilities import capabilities, is_utf8
from infer_console.terminal.clipboard import MAX_BYTES, copy_sequence
from infer_console.terminal.plain_ascii import OTHER, TABLE, plain_ascii
from infer_console.terminal.safe_text import safe
from rich.cells import cell_len


@pytest.mark.parametrize(
    ("environment", "utf8"),
    [
        ({}, True),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "de_DE.utf8@euro"}, True),
        ({"LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "en_US.ISO-8859-1"}, False),
        ({"LANG": "C"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),  # by Python's own start
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_CTYPE": "de_DE", "LANG": "en_US.UTF-8"}, False),
    ],
)
def test_a_locale_is_utf8_or_not(environment: dict[str, str], utf8: bool) -> None:
    assert is_utf8(environment) == utf8
    assert capabilities({"TERM": "xterm", **environment}).ascii_only is not utf8


def test_the_terminals_kind() -> None:
    assert capabilities({"TERM": "dumb"}).dumb
    assert capabilities({}).dumb
    assert not capabilities({"TERM": "vt100"}).dumb
    assert capabilities({"TERM": "screen", "TMUX": "/tmp/tmux-0/default,1,0"}).tmux
    assert capabilities({"TERM": "tmux-256color"}).tmux
    assert capabilities({"TERM": "xterm"}, ascii_only=True).ascii_only


# --- ASCII -------------------------------------------------------------------------------------------------


def drawn_characters() -> set[str]:
    """What is not ASCII in the strings of everything that makes rows."""
    root = Path(infer_console.__file__).parent
    files = [
        path for folder in ("view", "ui", "actions", "diagnosis") for path in (root / folder).rglob("*.py")
    ]
    constants = (
        node.value
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {
        character
        for text in constants
        for character in text
        if cell_len(character) and not character.isascii()
    }


def test_every_character_that_we_draw_has_one_of_ascii() -> None:
    drawn = drawn_characters()
    assert len(drawn) > 15
    assert not {character for character in drawn if plain_ascii(character) == OTHER}


def test_the_table_keeps_widths_and_is_ascii() -> None:
    for character, shown in TABLE.items():
        assert shown.isascii()
        assert shown.isprintable()
        assert len(shown) == cell_len(character) == 1, character


def test_what_is_told_apart_stays_apart() -> None:
    for alphabet in ("█▓▒░·", "▁▂▃▄▅▆▇█", "▲△", "●○", "✓✗"):
        shown = [plain_ascii(character) for character in alphabet]
        if alphabet.startswith("▁"):
            assert len(set(shown)) >= 7
        else:
            assert len(set(shown)) == len(alphabet), alphabet


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_safe_text_keeps_its_width_in_ascii(text: str) -> None:
    shown = safe(text)
    assert plain_ascii(shown).isascii()
    assert len(plain_ascii(shown)) == cell_len(shown)


def test_a_wide_character_is_two() -> None:
    assert plain_ascii("東x") == "??x"


# --- the clipboard, the bell, the title --------------------------------------------------------------------


def test_a_copy_is_one_sequence_and_tmux_passes_it_on() -> None:
    assert copy_sequence(safe("r2"), tmux=False) == "\x1b]52;c;cjI=\x1b\\"
    wrapped = copy_sequence(safe("r2"), tmux=True)
    assert wrapped is not None
    assert wrapped.endswith("\x1bPtmux;\x1b\x1b]52;c;cjI=\x1b\x1b\\\x1b\\")


def test_a_copy_has_a_limit() -> None:
    long = safe("x" * (MAX_BYTES + 1), MAX_BYTES + 10)
    assert copy_sequence(long, tmux=False) is None


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_no_title_ends_early_or_is_more_than_a_title(text: str) -> None:
    sequence = title_sequence(text)
    inside = sequence.removeprefix("\x1b]2;").removesuffix("\x1b\\")
    assert len(sequence) == len(inside) + 6
    assert len(inside) <= 80
    assert inside.isascii()
    assert inside.isprintable() or not inside


def test_something_critical_rings_once_and_stands_in_the_title() -> None:
    attention = Attention()
    assert attention.critical({}, "eu", 0) == ""
    first = attention.critical({"a": "KV is full"}, "eu", 1)
    assert first == f"{BELL}{KEEP_TITLE}\x1b]2;1 critical - eu: KV is full\x1b\\"
    assert attention.critical({"a": "KV is fuller"}, "eu", 30) == ""
    assert attention.critical({"a": "KV", "b": "r2 stalled"}, "eu", 40) == (
        f"{BELL}\x1b]2;2 critical - eu: r2 stalled\x1b\\"
    )
    assert attention.critical({"b": "r2 stalled"}, "eu", 60) == "\x1b]2;1 critical - eu: r2 stalled\x1b\\"
    assert BELL not in attention.critical({}, "eu", 80)
    assert attention.leave() == PUT_TITLE_BACK
    assert attention.leave() == ""


def test_an_alarm_that_comes_and_goes_rings_now_and_then() -> None:
    attention = Attention(title=False)
    rung = [attention.critical({"a": "x"} if second % 2 else {}, "eu", second) for second in range(60)]
    assert rung.count(BELL) == 6


def test_bell_and_title_can_be_off() -> None:
    assert Attention(bell=False).critical({"a": "x"}, "eu", 0).startswith(KEEP_TITLE)
    assert Attention(title=False).critical({"a": "x"}, "eu", 0) == BELL
    off = Attention(bell=False, title=False)
    assert off.critical({"a": "x"}, "eu", 0) == ""
    assert off.leave() == ""
