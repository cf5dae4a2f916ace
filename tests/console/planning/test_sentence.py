"""Words and tokens of a sentence, and what its KV takes."""

import pytest
from infer_console.planning.kv_grid import KvGrid, block_size_of
from infer_console.planning.sentence import cut
from infer_console.state.picture import Link, Picture
from infer_engine.planner import parse_deployment
from infer_engine.protocol import Tokenized, TokenPiece
from support.pictures import NOW, incident


def tokenized(*pieces: bytes | None) -> Tokenized:
    return Tokenized(tokenizer="any", tokens=[TokenPiece(at, each) for at, each in enumerate(pieces)])


def words_of(text: str, *pieces: bytes | None) -> list[tuple[int | None, bool]]:
    return [(each.word, each.begins) for each in cut(text, tokenized(*pieces)).tokens or ()]


def test_a_blank_before_a_word_belongs_to_its_token() -> None:
    assert words_of("The quick", b"The", b" qu", b"ick") == [(0, True), (1, True), (1, False)]


def test_some_tokenizers_put_a_blank_before_everything() -> None:
    assert words_of("a b", b" a", b" b") == [(0, True), (1, True)]


def test_blanks_alone_are_of_no_word() -> None:
    assert words_of("a   b ", b"a", b"  ", b" b", b" ") == [
        (0, True),
        (None, False),
        (1, True),
        (None, False),
    ]


def test_the_same_word_twice_is_two_words() -> None:
    assert words_of("no no", b"no", b" no") == [(0, True), (1, True)]


def test_a_token_may_end_within_a_character() -> None:
    text = "x 漢字"
    pieces = (b"x", b" \xe6\xbc", b"\xa2", "字".encode())
    assert words_of(text, *pieces) == [(0, True), (1, True), (1, False), (1, False)]
    tokens = cut(text, tokenized(*pieces)).tokens or ()
    assert [each.text for each in tokens] == ["x", " \\xe6\\xbc", "\\xa2", "字"]


@pytest.mark.parametrize("pieces", [(b"the", b" quick"), (b"The", None), (None, None)])
def test_tokens_that_are_not_the_text_are_put_to_no_word(pieces: tuple[bytes | None, ...]) -> None:
    assert words_of("The quick", *pieces) == [(None, False), (None, False)]


def test_without_a_tokenizer_there_are_words_alone() -> None:
    sentence = cut("two  words", None)
    assert (sentence.words, sentence.tokens) == (("two", "words"), None)


def test_what_the_kv_of_seven_tokens_takes() -> None:
    """The worked example of the 70B model."""
    grid = KvGrid(parse_deployment("70b@4×h100"), prompt=7, steps=0, block_size=16)
    assert (grid.layers, grid.layer_bytes, grid.kv_bytes) == (80, 28_672, 2_293_760)
    assert (grid.blocks, grid.free_slots, grid.held_bytes) == (1, 9, 16 * 327_680)


def test_a_step_adds_a_column_and_reads_it_with_all_before() -> None:
    grid = KvGrid(parse_deployment("70b@4×h100"), prompt=15, steps=2, block_size=16)
    first, second = grid.step(1), grid.step(2)
    assert [(each.column, each.block) for each in (first, second)] == [(15, 0), (16, 1)]
    assert [each.kv_read_bytes for each in (first, second)] == [16 * 327_680, 17 * 327_680]
    assert second.step_s == pytest.approx(second.weights_s + second.kv_s)
    assert (grid.tokens, grid.blocks, grid.free_slots) == (17, 2, 15)


def test_the_block_size_is_the_engines_where_it_is_told() -> None:
    picture = incident()
    told = next(iter(picture.replicas.values())).status.kv.block_size
    assert block_size_of(picture, None) == (told, True)
    assert block_size_of(Picture(at=NOW, link=Link("")), None) == (16, False)
