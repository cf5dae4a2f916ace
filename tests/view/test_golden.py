"""Whole screens as text. ``UPDATE_GOLDEN=1 pytest tests/view/test_golden.py`` writes them anew; look at the
difference."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from infer_console.state.picture import Picture
from infer_console.view.fleet_screen import fleet_screen
from infer_console.view.look import Look, Size
from infer_console.view.replica_screen import replica_screen
from infer_console.view.row import Row, plain
from infer_console.view.streams_screen import streams_screen
from support import pictures

GOLDEN = Path(__file__).parent / "golden"
SIZES = (Size(200, 50), Size(120, 36), Size(80, 24))
#: The Fleet screen has a layout for these too.
MORE_SIZES = (Size(300, 80), Size(40, 12))


def fleet(picture: Picture, size: Size) -> list[Row]:
    return fleet_screen(picture, Look(), size, pictures.NOW)


def replica(picture: Picture, size: Size) -> list[Row]:
    look = Look(replica="r2" if "r2" in picture.replicas else "r0")
    return replica_screen(picture, look, size, pictures.NOW)


def streams(picture: Picture, size: Size) -> list[Row]:
    look = Look()
    look.cursor("streams", "panels").follow(list(picture.streams))
    return streams_screen(picture, look, list(picture.streams), size, pictures.NOW)


SCREENS: dict[str, Callable[[Picture, Size], list[Row]]] = {
    "fleet": fleet,
    "replica": replica,
    "streams": streams,
}
CASES: tuple[tuple[str, str, Callable[[], Picture]], ...] = (
    ("incident", "fleet", pictures.incident),
    ("incident", "replica", pictures.incident),
    ("small", "fleet", pictures.small),
    ("small", "replica", pictures.small),
    ("small", "streams", pictures.small),
    ("quiet", "fleet", pictures.quiet),
    ("starting", "fleet", pictures.starting),
)


@pytest.mark.parametrize(
    ("name", "screen", "make"), CASES, ids=[f"{name}-{screen}" for name, screen, _ in CASES]
)
@pytest.mark.parametrize("size", SIZES, ids=[f"{size.width}x{size.height}" for size in SIZES])
def test_screen(name: str, screen: str, make: Callable[[], Picture], size: Size) -> None:
    check(name, screen, make, size)


@pytest.mark.parametrize("size", MORE_SIZES, ids=[f"{size.width}x{size.height}" for size in MORE_SIZES])
def test_fleet(size: Size) -> None:
    check("incident", "fleet", pictures.incident, size)


def check(name: str, screen: str, make: Callable[[], Picture], size: Size) -> None:
    rows = SCREENS[screen](make(), size)
    text = "\n".join(plain(row) for row in rows) + "\n"
    path = GOLDEN / f"{name}-{screen}-{size.width}x{size.height}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    for row in rows:
        assert sum(span.cells for span in row) == size.width


@pytest.mark.parametrize("width", [1, 5, 20, 40, 59, 60, 79, 99, 100, 119, 160, 200])
def test_every_size_is_drawn(width: int) -> None:
    for height in (1, 2, 3, 5, 10, 15, 18, 23, 30, 50):
        for _, screen, make in CASES:
            rows = SCREENS[screen](make(), Size(width, height))
            assert len(rows) == height
            assert all(sum(span.cells for span in row) == width for row in rows)


def test_the_least_that_is_shown_is_what_matters_most() -> None:
    text = [plain(row) for row in fleet(pictures.incident(), Size(60, 10))]
    assert "LIVE" in text[0]
    assert "WAIT 44" in text[1]
    assert any("r2: 23 wait" in line for line in text)
    assert any("D31/37" in line for line in text)
