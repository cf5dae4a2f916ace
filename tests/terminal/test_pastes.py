"""What is pasted is text, whatever is in it, and however it is cut."""

import pytest
from infer_console.terminal.pastes import END, MOST_CHARACTERS, START, PasteGuard, taken


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("q\x1b[A", "q\x1b[A"),
        (f"1{START}a\x1bq\x1b[201b\x1b{END}2", f"1{START}a␛q␛[201b␛{END}2"),
        (f"{START}{START}\x1b[Ix{END}{START}y{END}\x1b", f"{START}␛[200~␛[Ix{END}{START}y{END}\x1b"),
        (f"\x1b{START}\x1b{END}", f"\x1b{START}␛{END}"),
    ],
)
def test_an_escape_in_a_paste_is_text_wherever_the_input_is_cut(typed: str, read: str) -> None:
    for at in range(len(typed) + 1):
        guard = PasteGuard()
        assert guard.through(typed[:at]) + guard.through(typed[at:]) == read
    guard = PasteGuard()
    assert "".join(map(guard.through, typed)) == read


def test_a_paste_is_bounded_and_one_whose_end_is_lost_does_not_keep_the_operator_in() -> None:
    guard = PasteGuard()
    read = "".join(guard.through(piece) for piece in (START, *["x" * 10_000] * 20))
    assert len(read) == len(START) + MOST_CHARACTERS
    assert guard.through("q") == ""
    assert guard.through("\x03") == f"{END}\x03"
    assert guard.through("q") == "q"


def test_what_a_field_leaves_out_of_a_paste_is_said() -> None:
    assert taken("", 9) == ("", "")
    assert taken("\n  drain r2\n\n", 9) == ("drain r2", "")
    assert taken("ab\nc\n\nd", 9) == ("ab", "of what was pasted the first line is taken")
    words = "of what was pasted the first 512 characters are taken"
    assert taken("x" * 1_512 + "\ny", 512) == ("x" * 512, words)
