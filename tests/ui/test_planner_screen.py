"""Screen 7 driven by keys."""

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from infer_console.state.picture import SentencePicture
from infer_console.ui.screens.planner import PlannerScreen
from infer_console.view.planner_form import PlannerForm
from infer_engine.protocol import Simulation, Tokenized, TokenPiece
from support.pictures import incident
from support.pilot import Driven, drive
from textual import events

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
}


def form_of(driven: Driven) -> PlannerForm:
    screen = driven.app.screen
    assert isinstance(screen, PlannerScreen)
    return screen.form


async def go_to(driven: Driven, name: str) -> None:
    while form_of(driven).focused.param.name != name:
        await driven.press("down")


async def test_arrows_step_and_digits_type_where_a_number_is() -> None:
    async with drive(incident()) as driven:
        await driven.press("7")
        await driven.press("right")
        assert form_of(driven).field("model").text == "llama-3.1-405b"
        await go_to(driven, "gpus")
        await driven.press("8")
        assert form_of(driven).field("gpus").text == "8"
        await driven.press("j", "k", "left")
        assert form_of(driven).field("gpus").text == "7"
        assert "llama-3.1-405b@7×h100" in driven.text


async def test_digits_are_screens_where_something_is_chosen_and_what_was_asked_stays() -> None:
    async with drive(incident()) as driven:
        await driven.press("7", "right", "1")
        assert driven.app.screen.name_in_look == "fleet"  # pyright: ignore[reportAttributeAccessIssue]
        await driven.press("7")
        assert form_of(driven).field("model").text == "llama-3.1-405b"
        await go_to(driven, "gpus")
        await driven.press("escape")
        assert driven.app.screen.name_in_look == "fleet"  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_path_is_typed_letter_by_letter_and_read_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "jkqU7.json"
    path.write_text(json.dumps(CONFIG))
    async with drive(incident()) as driven:
        await driven.press("7")
        await go_to(driven, "config")
        await driven.type(path.name)
        await driven.wait_for("jkqU7@4×h100")
        assert form_of(driven).field("model").text == "config.json"
        await driven.press("backspace")
        await driven.wait_for("No such file or directory")
        await driven.press("escape")
        assert form_of(driven).focused.param.name == "model"


async def test_a_path_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    async with drive(incident()) as driven:
        await driven.press("7")
        await go_to(driven, "config")
        pasted = events.Paste(f"{path}\nrm -rf")
        pasted.set_sender(driven.app)
        driver = driven.app._driver
        assert driver is not None
        driver.send_message(pasted)
        await driven.wait_for(f"{tmp_path.name[:64]}@4×h100")
        assert form_of(driven).field("config").text == str(path)


async def test_results_scroll() -> None:
    async with drive(incident(), 80, 24) as driven:
        await driven.press("7", "G")
        assert "FLOP per byte" in driven.text
        await driven.press("g")
        assert "── MEMORY" in driven.text


async def test_f_asks_for_what_is_watched() -> None:
    async with drive(incident()) as driven:
        await driven.press("7")
        await go_to(driven, "headroom")
        await driven.press("5", "0", "f")
        await driven.wait_for("taken from the engine: model, headroom %, batch headroom %")
        assert float(form_of(driven).field("headroom").text) < 11


async def test_actions_are_still_there() -> None:
    async with drive(incident()) as driven:
        await driven.press("7", "j", "question_mark")
        await driven.wait_for("any key closes")


async def test_it_opens_with_what_is_watched_unless_something_else_was_asked() -> None:
    picture = incident()
    fleet = msgspec.structs.replace(
        picture.fleet or pytest.fail("fleet"), simulation=Simulation(deployment="8b@2×l40s", speed=1)
    )
    async with drive(dataclasses.replace(picture, fleet=fleet)) as driven:
        await driven.press("7")
        assert "8b@2×l40s" in driven.text
        await driven.press("left", "1", "7")
        assert form_of(driven).field("model").text == "70b"


def cut(text: str) -> SentencePicture:
    """A tokenizer that makes a token of every letter."""
    tokens = [TokenPiece(each, bytes([each])) for each in text.encode()]
    return SentencePicture(text, Tokenized(tokenizer="letters", tokens=tokens))


async def test_a_sentence_is_typed_with_all_keys_and_asked_for() -> None:
    async with drive(incident()) as driven:
        await driven.press("7", "v")
        await driven.type("q v1 7d:?")
        assert driven.collector.sentence == "q v1 7d:?"
        assert "tokens –" in driven.text
        await driven.press("backspace", "enter")
        assert driven.collector.sentence == "q v1 7d:"
        await driven.show(dataclasses.replace(incident(), sentence=cut("q v1 7d:")))
        assert "3 words → 8 tokens → 8 ids" in driven.text
        await driven.press("plus", "plus", "minus")
        assert "decode 1: token 9 into block 0" in driven.text
        assert "decode 2" not in driven.text
        await driven.press("enter", "backspace", "escape")
        assert driven.collector.sentence == "q v1 7d"
        await driven.press("v")
        assert driven.collector.sentence is None
        assert "── MEMORY" in driven.text
        await driven.press("v")
        assert driven.collector.sentence == "q v1 7d"


async def test_other_screens_ask_for_no_tokens() -> None:
    async with drive(incident()) as driven:
        await driven.press("7", "v", "a", "enter", "1")
        assert driven.collector.sentence is None
        await driven.press("7")
        assert driven.collector.sentence == "a"
        await driven.press("escape", "escape")
        assert driven.app.screen.name_in_look == "fleet"  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_sentence_can_be_given_as_a_command_or_pasted() -> None:
    async with drive(incident()) as driven:
        await driven.press("colon")
        await driven.type("sentence two  words")
        await driven.press("enter")
        await driven.wait_for("── KV GRID")
        assert driven.collector.sentence == "two  words"
        pasted = events.Paste(" more\nlines")
        pasted.set_sender(driven.app)
        driver = driven.app._driver
        assert driver is not None
        driver.send_message(pasted)
        await driven.settle()
        assert driven.collector.sentence == "two  wordsmore"


async def test_decode_is_played_in_the_grid_alone() -> None:
    async with drive(incident()) as driven:
        await driven.press("7", "plus")
        await driven.wait_for("v shows the KV grid")
        assert driven.app.look.kv_grid.steps == 0


async def test_the_tokens_are_of_now_whatever_moment_is_shown() -> None:
    async with drive(dataclasses.replace(incident(), sentence=cut("ab"))) as driven:
        await driven.press("7", "v")
        await driven.type("ab")
        await driven.press("enter", "p")
        assert driven.app.look.paused
        assert "1 words → 2 tokens" in driven.text
