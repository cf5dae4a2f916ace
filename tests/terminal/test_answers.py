"""An answer to a question never reaches the keys, however it is torn; a key always does."""

import pytest
from infer_console.terminal.answers import TornAnswer, Typed


def feed(torn: TornAnswer, text: str, awaited: bool = True) -> tuple[list[str], int]:
    acted: list[str] = []
    answers = 0
    for character in text:
        name = "escape" if character == "\x1b" else character
        keys, completed = torn.feed(Typed(name, character), awaited)
        acted += [typed.key for typed in keys]
        answers += completed
    return acted, answers


@pytest.mark.parametrize("answer", ["\x1b[1;1R", "\x1b[50;200R", "\x1b[999;9999R"])
def test_an_answer_in_single_characters_is_no_key(answer: str) -> None:
    torn = TornAnswer()
    assert feed(torn, answer) == ([], 1)
    assert not torn.holding
    assert feed(torn, "j" + answer + "k") == (["j", "k"], 1)


def test_esc_is_a_key_when_nothing_follows() -> None:
    torn = TornAnswer()
    assert feed(torn, "\x1b") == ([], 0)
    assert torn.holding
    assert torn.release() == [Typed("escape", "\x1b")]
    assert feed(torn, "\x1b", awaited=False) == (["escape"], 0)


@pytest.mark.parametrize(
    "typed", ["\x1bj", "\x1b[j", "\x1b[12x", "\x1b[;", "\x1b[1;R", "\x1b[1;2;3R", "\x1b[12R", "\x1b[1;x"]
)
def test_what_is_no_answer_is_typed(typed: str) -> None:
    torn = TornAnswer()
    acted, answers = feed(torn, typed)
    acted += [each.key for each in torn.release()]
    assert (acted, answers) == (["escape", *typed[1:]], 0)


def test_it_holds_no_more_than_an_answer_has() -> None:
    torn = TornAnswer()
    acted, _ = feed(torn, "\x1b[" + "1" * 40)
    assert acted[:3] == ["escape", "[", "1"]
