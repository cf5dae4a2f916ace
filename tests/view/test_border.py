"""Production has a border on four sides, at every size, and it costs no cell where cells are short."""

import dataclasses
import os
from pathlib import Path

import pytest
from infer_console.state.picture import Environment, Picture
from infer_console.terminal.safe_text import safe
from infer_console.view.border import SIDES_FROM, bordered, inside
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.row import Row, Span, plain
from support import pictures

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24), Size(40, 12))


def production() -> Picture:
    named = Environment(name="eu-west", production=True)
    return dataclasses.replace(pictures.incident(), environment=named)


def fleet(size: Size, picture: Picture | None = None) -> list[Row]:
    within = inside(size)
    return bordered(fleet_screen(picture or production(), Look(), within, pictures.NOW), size.width)


def ground(row: Row) -> str:
    """A sign for each cell: # where it is production's."""
    return "".join(("#" if span.tone == "production" else " ") * span.cells for span in row)


@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
def test_the_border(size: Size) -> None:
    rows = fleet(size)
    between = "#" + " " * (size.width - 2) + "#"
    assert [ground(row) for row in rows] == [
        "#" * size.width,
        *[between] * (size.height - 2),
        "#" * size.width,
    ]
    assert "PROD" in plain(rows[0])
    text = "\n".join(plain(row) for row in rows) + "\n"
    path = GOLDEN / f"production-fleet-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1, 2, 3, 39, 80, 99, SIDES_FROM - 1, SIDES_FROM, SIDES_FROM + 1, 250])
def test_rows_are_as_wide_as_the_terminal(width: int) -> None:
    for row in fleet(Size(width, 20)):
        assert sum(span.cells for span in row) == width


@pytest.mark.parametrize("size", [Size(120, 36), Size(80, 24), Size(40, 12)])
def test_it_costs_no_pane_and_no_column(size: Size) -> None:
    plainly = [plain(row) for row in fleet_screen(pictures.incident(), Look(), size, pictures.NOW)]
    heads = next(row for row in plainly if row.startswith("  ID"))
    shown = [plain(row)[1 if size.width >= SIDES_FROM else 0 :] for row in fleet(size)]
    assert next(row for row in shown if row.startswith("  ID")).split() == heads.split()
    assert [row[:6] for row in shown[1:]] == [row[:6] for row in plainly[1:]]


def test_what_stands_in_the_place_of_the_keys_leaves_it_whole() -> None:
    size = Size(80, 24)
    drawn = fleet_screen(production(), Look(), inside(size), pictures.NOW, safe("said"))
    rows = bordered(drawn, size.width)
    assert (ground(rows[-1]), plain(rows[-1])) == ("#" * 80, " said")


def test_a_wide_character_on_the_edge_is_not_cut_in_two() -> None:
    wide = Span("漢", cells=2)
    between = bordered([(wide,) * 40] * 3, 81)[1]
    assert sum(span.cells for span in between) == 81
    assert [span.text for span in between] == [" ", " ", *["漢"] * 39, " "]
