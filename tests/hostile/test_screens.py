"""Hostile text in every field that others fill: screens keep their shape and print nothing they may not."""

from collections.abc import Callable

import pytest
from hostile.corpus import CORPUS, FORBIDDEN
from infer_console.state.picture import Picture, SentencePicture
from infer_console.terminal.safe_text import safe_identifier
from infer_console.view.doctor_screen import doctor_screen
from infer_console.view.events_screen import events_screen
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.frame import start_rows
from infer_console.view.kv_grid_form import KvGridForm
from infer_console.view.look import Look, Size
from infer_console.view.operation_list import operation_box
from infer_console.view.planner_form import PlannerForm
from infer_console.view.planner_screen import kv_grid_screen, planner_screen
from infer_console.view.replica_screen import replica_screen
from infer_console.view.requests_screen import requests_screen
from infer_console.view.row import Row, overlay, plain
from infer_console.view.streams_screen import streams_screen
from infer_console.view.traffic_screen import traffic_screen
from infer_engine.protocol import MOST_SENTENCE, Tokenized, TokenPiece
from rich.cells import cell_len
from support import pictures
from support.hostile_pictures import STREAM, hostile_ids, hostile_incident

SIZES = (Size(120, 36), Size(80, 24))


def assert_intact(rows: list[Row], size: Size) -> None:
    assert len(rows) == size.height
    for row in rows:
        text = "".join(span.text for span in row)
        assert not FORBIDDEN.intersection(text), ascii(text)
        assert sum(span.cells for span in row) == size.width
        assert cell_len(text) == size.width, ascii(text)


def all_screens(picture: Picture, replica: str, stream: str, size: Size) -> list[list[Row]]:
    look = Look(replica=replica)
    filtered = Look(replica=replica, filter=stream[:64], filtering=True)
    filtered.focus["replica"] = "queue"
    return [
        fleet_screen(picture, look, size, pictures.NOW),
        doctor_screen(picture, look, size, pictures.NOW),
        replica_screen(picture, look, size, pictures.NOW),
        replica_screen(picture, filtered, size, pictures.NOW),
        streams_screen(picture, look, [stream], size, pictures.NOW),
        streams_screen(picture, Look(revealed=True), [stream], size, pictures.NOW),
        requests_screen(picture, look, size, pictures.NOW),
        requests_screen(picture, filtered, size, pictures.NOW),
        requests_screen(picture, Look(timeline=stream), size, pictures.NOW),
        events_screen(picture, look, size, pictures.NOW),
        over(events_screen(picture, filtered, size, pictures.NOW), operation_box, picture, size),
        traffic_screen(picture, look, size, pictures.NOW),
        planner_screen(picture, look, PlannerForm(path=stream, config_error=stream), size, pictures.NOW),
        start_rows(picture, size.width, size.height),
    ]


def over(
    rows: list[Row], box: Callable[[Picture, str, int, int, float], list[Row]], picture: Picture, size: Size
) -> list[Row]:
    """A box on the first operation over a screen."""
    operation = picture.operations[0].id
    return overlay(rows, box(picture, operation, size.width, size.height, pictures.NOW), size.width)


@pytest.mark.parametrize("text", CORPUS, ids=lambda text: ascii(text[:16]))
def test_screens_keep_their_shape(text: str) -> None:
    wide, narrow = SIZES
    for rows in all_screens(hostile_incident(text), "r2", STREAM, wide):
        assert_intact(rows, wide)
    for rows in all_screens(hostile_ids(text), text, text, narrow):
        assert_intact(rows, narrow)


@pytest.mark.parametrize("text", CORPUS, ids=lambda text: ascii(text[:16]))
def test_a_sentence_keeps_its_grid_in_shape(text: str) -> None:
    text = text[:MOST_SENTENCE]
    tokens = [TokenPiece(each, bytes([each])) for each in text.encode("utf-8", "replace")]
    size = SIZES[1]
    for found in (Tokenized(tokenizer=text, tokens=tokens), None):
        look = Look(kv_grid=KvGridForm(open=True, typing=found is None, text=text))
        sentence = SentencePicture(text, found, text)
        assert_intact(
            kv_grid_screen(pictures.incident(), look, PlannerForm(), sentence, size, pictures.NOW), size
        )


def test_what_is_not_user_text_stays_where_it_was() -> None:
    """The columns of the fleet table do not move, whatever the texts around it are."""
    size = SIZES[0]
    quiet = fleet_screen(pictures.incident(), Look(), size, pictures.NOW)
    hostile = fleet_screen(hostile_incident("\x1b[2J\u202e東京" * 20), Look(), size, pictures.NOW)
    table = [plain(row) for row in quiet if " ready  " in plain(row) or "drain 31/37" in plain(row)]
    table = table[1:]  # without the banner, which says how many are ready
    assert len(table) == 7
    shown = [plain(row) for row in hostile]
    for row in table:
        assert row in shown


def test_a_look_alike_of_an_id_is_told_apart() -> None:
    assert safe_identifier("r\u0430") != safe_identifier("ra")
