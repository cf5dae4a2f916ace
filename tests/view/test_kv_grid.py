"""The KV grid of a sentence as text. ``UPDATE_GOLDEN=1`` writes the screens anew."""

import dataclasses
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
    size: Size = Size(120, 36),
    picture: Picture | None = None,
    **asked: str,
) -> str:
    form = PlannerForm()
    for name, text in asked.items():
        form.field(name).text = text
    form.work_out()
    rows = kv_grid_screen(picture or incident(), Look(), form, grid, found, size, NOW)
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
