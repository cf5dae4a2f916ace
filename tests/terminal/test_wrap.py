"""Wrapping of a stream that grows."""

from infer_console.terminal.wrap import PaneRow, wrap


def shown(rows: list[PaneRow]) -> list[str]:
    return ["".join(piece.text for piece in row) for row in rows]


def test_breaks_stay_while_a_long_line_grows() -> None:
    text = "".join(chr(0x4E00 + index % 500) for index in range(3 * 4096))
    before = shown(wrap(text, 40, 10))
    after = shown(wrap(text + "末" * 20, 40, 10))
    assert before[1:-1] == after[:-2]


def test_a_long_line_is_wrapped_from_near_its_end() -> None:
    text = "東" * 60_000
    assert shown(wrap(text, 40, 3)) == ["東" * 20, "東" * 20, "東" * (60_000 % 4096 % 20 or 20)]


def test_words_stay_whole() -> None:
    text = "the quick brown fox jumps"
    assert shown(wrap(text, 12)) == ["the quick ", "brown fox ", "jumps"]
    assert shown(wrap(text.replace("e", "é"), 12)) == ["thé quick ", "brown fox ", "jumps"]


def test_a_word_longer_than_a_row_is_broken() -> None:
    assert shown(wrap("ab cdefghijklmnop", 8)) == ["ab cdefg", "hijklmno", "p"]
    assert shown(wrap("áb cdefghijklmnop", 8)) == ["áb cdefg", "hijklmno", "p"]
