"""The Requests, Streams and Events screens as text, in three sizes. ``UPDATE_GOLDEN=1 pytest
tests/view/test_list_goldens.py`` writes them anew; look at the difference."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from infer_console.view.events_screen import events_screen
from infer_console.view.kinds import kind_rows
from infer_console.view.look import Look, Size
from infer_console.view.operation_list import operation_box
from infer_console.view.requests_screen import requests_screen
from infer_console.view.row import Row, overlay, plain
from infer_console.view.streams_screen import streams_screen
from support import list_pictures
from support.pictures import NOW

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))


def requests(size: Size) -> list[Row]:
    return requests_screen(list_pictures.listed(), Look(), size, NOW)


def ended(size: Size) -> list[Row]:
    return requests_screen(list_pictures.listed(), Look(shown="ended"), size, NOW)


def waits(size: Size) -> list[Row]:
    return requests_screen(
        list_pictures.with_timeline(list_pictures.WAITS), Look(timeline="7f3b02"), size, NOW
    )


def lived(size: Size) -> list[Row]:
    return requests_screen(
        list_pictures.with_timeline(list_pictures.LIVED), Look(timeline="7f2a9e"), size, NOW
    )


def streams(size: Size) -> list[Row]:
    return streams_screen(list_pictures.streaming(), Look(), list(list_pictures.PANELS), size, NOW)


def revealed(size: Size) -> list[Row]:
    look = Look(revealed=True)
    return streams_screen(list_pictures.streaming(), look, list(list_pictures.PANELS), size, NOW)


def events(size: Size) -> list[Row]:
    return events_screen(list_pictures.operating(), Look(), size, NOW)


def kinds(size: Size) -> list[Row]:
    look = Look(hidden_kinds={"admit", "finish"})
    picture = list_pictures.operating()
    rows = events_screen(picture, look, size, NOW)
    return overlay(rows, kind_rows(picture, look, 1, size.width, size.height), size.width)


def operation(size: Size) -> list[Row]:
    look, picture = Look(), list_pictures.operating()
    look.focus["events"] = "operations"
    rows = events_screen(picture, look, size, NOW)
    return overlay(rows, operation_box(picture, "op-118", size.width, size.height, NOW), size.width)


SCREENS: dict[str, Callable[[Size], list[Row]]] = {
    "requests": requests,
    "requests-ended": ended,
    "timeline-waits": waits,
    "timeline-lived": lived,
    "streams-hidden": streams,
    "streams-revealed": revealed,
    "events": events,
    "events-kinds": kinds,
    "events-operation": operation,
}


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
def test_screen(name: str, size: Size) -> None:
    rows = SCREENS[name](size)
    text = "\n".join(plain(row) for row in rows) + "\n"
    path = GOLDEN / f"lists-{name}-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert len(rows) == size.height
    for row in rows:
        assert sum(span.cells for span in row) == size.width


@pytest.mark.parametrize("width", [1, 20, 40, 59, 100])
def test_every_size_is_drawn(width: int) -> None:
    for height in (1, 2, 5, 12, 30):
        for name, screen in SCREENS.items():
            rows = screen(Size(width, height))
            assert all(sum(span.cells for span in row) == width for row in rows), name
            assert len(rows) == height or name.startswith("events-"), name
