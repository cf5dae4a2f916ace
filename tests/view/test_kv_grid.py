"""The KV grid of a sentence as text. ``UPDATE_GOLDEN=1`` writes the screens anew."""

import os
from pathlib import Path

import pytest
from infer_console.planning.kv_grid import MOST_STEPS
from infer_console.state.picture import Link, Picture, SentencePicture
from infer_console.terminal.plain_ascii import plain_ascii
from infer_console.view.kv_grid_form import KvGridForm
from infer_console.view.look import Look, Size
from infer_console.view.planner_form import PlannerForm
from infer_console.view.planner_screen import kv_grid_screen
from infer_console.view.row import plain
from infer_engine.protocol import MOST_SENTENCE, Tokenized, TokenPiece
from support.pictures import NOW, incident

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))
MIDDLE = SIZES[1]
TEXT = "The quick brown fox jumps over incomprehensible lazy dogs."
CUT = [
    "The",
    " quick",
    " brown",
    " fox",
    " jumps",
    " over",
    " incom",
    "pre",
    "hens",
    "ible",
    " lazy",
    " dogs",
    ".",
]


def tokenized(*pieces: str | bytes | None, name: str = "llama-3.1-70b") -> Tokenized:
    made = [each.encode() if isinstance(each, str) else each for each in pieces]
    return Tokenized(tokenizer=name, tokens=[TokenPiece(100 + 37 * at, each) for at, each in enumerate(made)])


def opened(text: str = TEXT, steps: int = 0, typing: bool = False) -> KvGridForm:
    return KvGridForm(open=True, typing=typing, text=text, steps=steps)


def text_of(
    grid: KvGridForm,
    found: SentencePicture | None,
    size: Size = MIDDLE,
    picture: Picture | None = None,
    **asked: str,
) -> str:
    form = PlannerForm()
    for name, text in asked.items():
        form.field(name).text = text
    form.work_out()
    rows = kv_grid_screen(picture or incident(), Look(kv_grid=grid), form, found, size, NOW)
    assert len(rows) == size.height
    assert all(sum(span.cells for span in row) == size.width for row in rows)
    return "\n".join(plain(row) for row in rows) + "\n"


@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
@pytest.mark.parametrize("name", ["prefill", "decode", "words", "long"])
def test_screen(name: str, size: Size) -> None:
    found = SentencePicture(TEXT, tokenized(*CUT))
    match name:
        case "prefill":
            text = text_of(opened(typing=True), found, size)
        case "decode":
            text = text_of(opened(steps=5), found, size)
        case "words":
            text = text_of(opened(), SentencePicture(TEXT, None, "it offers no /tokenize"), size)
        case _:
            many = "word " * 79
            found = SentencePicture(many, tokenized("word", *[" word"] * 78, " ", name="smollm2"))
            text = text_of(opened(many), found, size)
    path = GOLDEN / f"kv-grid-{name}-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1, 20, 63, 100, 300])
def test_every_size_is_drawn(width: int) -> None:
    cases = [SentencePicture(TEXT, tokenized(*CUT)), SentencePicture(TEXT), None]
    for height in (1, 3, 10, 24, 50):
        for found in cases:
            text_of(opened(steps=40), found, Size(width, height))
            text_of(opened(), found, Size(width, height), Picture(at=NOW, link=Link("")))
        text_of(opened(text=""), None, Size(width, height))


def test_the_longest_sentence_of_the_smallest_tokens_is_drawn() -> None:
    text = "\U0001f600" * MOST_SENTENCE
    pieces = [bytes([each]) for each in text.encode()]
    shown = text_of(opened(text, steps=MOST_STEPS), SentencePicture(text, tokenized(*pieces)), SIZES[2])
    assert "1 words → 1,600 tokens → 1,600 ids" in shown
    assert "blocks of 16 are not told apart" in shown
    assert " blocks of 16             116  608,174,080 B held, all slots taken" in shown


def test_layers_that_do_not_fit_share_rows_and_say_how_many() -> None:
    found = SentencePicture(TEXT, tokenized(*CUT))
    assert "a cell is 1 tok × 5 layers" in text_of(opened(), found)
    assert "L0–4" in text_of(opened(), found)
    alone = text_of(opened(), found, Size(120, 60), model="smollm2-135m-instruct")
    assert "a cell is 1 tok × 1 layer" in alone
    assert [line.split()[0] for line in alone.splitlines() if line.startswith(" L")] == [
        f"L{layer}" for layer in range(30)
    ]


def test_a_decode_step_adds_a_column_in_all_layers() -> None:
    found = SentencePicture(TEXT, tokenized(*CUT))

    def columns(steps: int) -> set[tuple[int, int, int]]:
        rows = [line for line in text_of(opened(steps=steps), found).splitlines() if line.startswith(" L")]
        return {(row.count("█") // 3, row.count("▓") // 3, row.count("·") // 3) for row in rows}

    assert columns(0) == {(13, 0, 3)}
    assert columns(1) == {(13, 1, 2)}
    assert columns(3) == {(13, 3, 0)}
    assert columns(4) == {(13, 4, 15)}


def test_words_are_not_counted_as_tokens() -> None:
    waiting, none = text_of(opened(), SentencePicture(TEXT)), text_of(opened(), None)
    assert "9 words → tokens –: the engine's tokenizer is asked" in waiting
    assert "tokens –: no engine is connected whose tokenizer could be asked" in none
    # What was cut is another sentence than stands there by now.
    assert "tokens –" in text_of(opened(), SentencePicture("The", tokenized("The")))


def test_tokens_whose_text_nobody_tells_have_ids_and_no_words() -> None:
    shown = text_of(opened("two words"), SentencePicture("two words", tokenized(None, None)))
    assert "2 words → 2 tokens" in shown
    assert " tokens │– " in shown
    assert " ids    │100 137" in shown
    assert "\n words" not in shown


def test_another_models_tokenizer_is_named() -> None:
    found = SentencePicture("a", tokenized("a", name="org/Llama-3.1-8B-Instruct"))
    assert "△ tokens of org/Llama-3.1-8B-Instruct; 70b may cut otherwise" in text_of(opened("a"), found)
    assert "may cut otherwise" not in text_of(opened("a"), found, model="llama-3.1-8b")


def test_blocks_are_marked_where_they_begin() -> None:
    text = "a" * 17
    shown = text_of(opened(text), SentencePicture(text, tokenized(*text)))
    names = next(line for line in shown.splitlines() if line.startswith(" tokens "))
    assert names.index("│", names.index("│") + 1) > names.index("│") + 16
    assert "2  10,485,760 B held, 15 slots of the last one free" in shown


def test_what_others_wrote_is_harmless_and_told_apart_in_ascii() -> None:
    evil = "\x1b[2J\u202e\x9b31m"
    found = SentencePicture(evil, tokenized(evil, name="\x1b]0;x\x07" * 9))
    refused = SentencePicture(evil, None, "\x1b[31m" * 50)
    for each in (found, refused):
        shown = text_of(opened(evil), each)
        assert not set(shown) & {"\x1b", "\x07", "\u202e", "\x9b"}
    grid = plain_ascii("█▓·│▾")
    assert len(set(grid)) == len(grid)


def test_the_sentence_is_typed_up_to_its_bound() -> None:
    grid = KvGridForm()
    grid.show()
    assert (grid.open, grid.typing, grid.sentence) == (True, True, None)
    grid.type("a\x1bb\n")
    assert grid.sentence == "ab"
    grid.step(1)
    grid.erase()
    assert (grid.text, grid.steps) == ("a", 0)
    grid.type("x" * 1_000)
    assert len(grid.text) == MOST_SENTENCE
    grid.step(-1)
    assert grid.steps == 0
    grid.step(1_000_000)
    assert grid.steps == MOST_STEPS
    grid.finish()
    assert (grid.open, grid.typing) == (True, False)
    grid.show("other")
    assert (grid.text, grid.typing, grid.steps) == ("other", False, 0)
    grid.close()
    assert grid.sentence is None
    blank = KvGridForm(open=True, typing=True, text="  ")
    blank.finish()
    assert not blank.open
