"""The Planner screen as text, and its form. ``UPDATE_GOLDEN=1`` writes the screens anew."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from infer_console.state.picture import Link, Picture
from infer_console.view.look import Look, Size
from infer_console.view.planner_form import PlannerForm
from infer_console.view.planner_screen import planner_screen
from infer_console.view.planner_taken import take_over
from infer_console.view.row import plain
from infer_engine.planner import PlanError, shape_of_config
from infer_engine.protocol import Simulation
from support.pictures import NOW, incident

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))
MINE = {
    "model_type": "newest",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
}


def asked(**given: str) -> PlannerForm:
    form = PlannerForm()
    for name, text in given.items():
        form.field(name).text = text
    form.work_out()
    return form


def from_file() -> PlannerForm:
    form = asked(model="config.json", config="/models/mine", gpu="l4", price="0.8", gpus="2")
    form.read("/models/mine", shape_of_config(MINE, "config.json", "mine"))
    return form


def refused() -> PlannerForm:
    form = asked(gpus="0")
    form.focus = 6
    return form


CASES: dict[str, Callable[[], PlannerForm]] = {"example": PlannerForm, "file": from_file, "refused": refused}


def text_of(form: PlannerForm, size: Size, picture: Picture | None = None, replica: str | None = None) -> str:
    rows = planner_screen(picture or incident(), Look(replica=replica), form, size, NOW)
    assert len(rows) == size.height
    assert all(sum(span.cells for span in row) == size.width for row in rows)
    return "\n".join(plain(row) for row in rows) + "\n"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
def test_screen(name: str, size: Size) -> None:
    text = text_of(CASES[name](), size, replica="r2" if name == "example" else None)
    path = GOLDEN / f"{name}-planner-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1, 5, 20, 40, 63, 64, 80, 99, 100, 159, 160, 300])
def test_every_size_is_drawn(width: int) -> None:
    unconnected = Picture(at=NOW, link=Link(""))
    for height in (1, 2, 3, 5, 10, 12, 24, 50):
        for make in CASES.values():
            text_of(make(), Size(width, height))
            text_of(make(), Size(width, height), unconnected)


def test_without_an_engine_it_plans_and_measures_nothing() -> None:
    text = text_of(PlannerForm(), Size(120, 36), Picture(at=NOW, link=Link("")))
    assert "488,281 tok" in text
    assert next(line for line in text.splitlines() if "ITL p50" in line)[:44].split() == [
        "ITL",
        "p50",
        "–",
        "–",
    ]


def test_all_results_can_be_scrolled_to() -> None:
    form = PlannerForm()
    assert "FLOP per byte" not in text_of(form, Size(80, 24))
    form.scrolled = 1_000
    assert "FLOP per byte" in text_of(form, Size(80, 24))


def test_what_is_typed_is_answered_at_once() -> None:
    form = PlannerForm()
    form.focus = [field.param.name for field in form.fields].index("context")
    for character in "16000":
        assert form.type(character)
    assert form.answer is not None
    assert form.answer.question.context == 16_000
    assert not form.type("q")
    form.erase()
    assert form.answer.question.context == 1_600
    form.step(1)
    assert form.answer.question.context == 2_600


def test_a_step_from_an_empty_figure_starts_at_the_data_sheet() -> None:
    form = PlannerForm()
    form.focus = [field.param.name for field in form.fields].index("memory_gb")
    form.step(1)
    assert form.field("memory_gb").text == "88"


def test_the_answer_before_stays_while_there_is_none() -> None:
    form = asked(gpus="0")
    assert "gpus: '0' was given" in form.error
    assert form.answer is not None
    assert form.answer.question.deployment.gpus == 4
    assert "△ of what stood there before" in text_of(form, Size(120, 36))


def test_a_file_is_asked_for_read_and_refused() -> None:
    form = asked(model="config.json", config="/models/other")
    assert (form.wanted_path, form.reading) == ("/models/other", True)
    form.read("/models/other", PlanError("/models/other: hidden_size is missing"))
    assert (form.reading, form.error) == (False, "/models/other: hidden_size is missing")
    assert "▲ /models/other: hidden_size is missing" in text_of(form, Size(80, 24))
    form.field("model").text = "8b"
    form.work_out()
    assert form.error == ""


def test_what_is_watched_can_be_asked_for() -> None:
    form = asked(headroom="50")
    picture = incident()
    assert picture.fleet is not None
    simulated = msgspec.structs.replace(
        picture.fleet, simulation=Simulation(deployment="llama-3.1-8b@2×l40s", speed=4)
    )
    taken = take_over(form, dataclasses.replace(picture, fleet=simulated), "r2")
    assert taken == ["model", "GPU", "GPUs", "headroom %", "batch headroom %"]
    assert form.answer is not None
    assert str(form.answer.question.deployment) == "llama-3.1-8b@2×l40s"
    assert form.answer.question.admit_mark == pytest.approx(0.9, abs=0.001)
    assert form.answer.question.batch_mark == pytest.approx(0.65, abs=0.001)
    assert "△ not the model or KV type asked for" in text_of(form, Size(120, 36))


def test_an_engine_that_tells_nothing_changes_nothing() -> None:
    form = asked(gpus="3")
    assert take_over(form, Picture(at=NOW, link=Link("")), None) == []
    assert form.field("gpus").text == "3"


def test_text_of_a_file_and_of_the_operator_is_harmless() -> None:
    form = asked(model="config.json", config="/m")
    evil = {**MINE, "model_type": "\x1b[2J\u202e"}
    form.read("/m", shape_of_config(evil, "config.json", "\x1b]0;x\x07" * 9))
    text = text_of(form, Size(120, 36), replica="r2")
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
