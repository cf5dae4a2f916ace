"""The pictures that the pages show are there, and the recording plays to its end."""

import re
from pathlib import Path

import pytest
from support import cast

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
RECORDING = IMAGES / "incident.cast"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_every_image_that_a_page_names_is_there(page: Path) -> None:
    for words, image, source in SHOWN.findall(page.read_text(encoding="utf-8")):
        name = image or source
        assert (page.parent / name).is_file(), f"{page.name} names {name}"
        assert words or source, f"{page.name}: {name} says nothing to those who cannot see it"


def test_the_recording_plays_and_ends_on_the_fleet_after_a_drain() -> None:
    made = cast.read(RECORDING)
    assert (made.columns, made.rows) == (120, 36)
    assert 10 < made.length_s <= 60
    assert RECORDING.stat().st_size <= 400_000
    pauses = [later.at_s - sooner.at_s for sooner, later in zip(made.pieces, made.pieces[1:], strict=False)]
    assert max(pauses) <= 2.01
    lines = made.played().display
    assert lines[0].startswith(" eu-west  SIMULATED")
    assert any(" drained " in line for line in lines)
    assert any(line.startswith("── WAITING") for line in lines)


def test_nothing_in_pictures_is_of_the_machine_that_made_them() -> None:
    for path in [RECORDING, *IMAGES.glob("*.svg")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/work|/home|/root|ick_|sha256", text), path.name
        assert path == RECORDING or len(text.encode()) <= 120_000, path.name


def test_what_is_cut_keeps_characters_whole_and_pauses_short(tmp_path: Path) -> None:
    raw = "─▸✓".encode()
    came = [(100.0, 2), (100.05, 4), (130.0, 7), (130.4, len(raw))]
    pieces = cast.cut(raw, came, gap_s=0.2)
    assert "".join(piece.text for piece in pieces) == "─▸✓"
    assert pieces == [cast.Piece(0.05, "─"), cast.Piece(2.05, "▸"), cast.Piece(2.45, "✓")]
    cast.write(tmp_path / "a.cast", cast.Cast(10, 2, "a", pieces))
    assert cast.read(tmp_path / "a.cast") == cast.Cast(10, 2, "a", pieces)
    assert cast.read(tmp_path / "a.cast").played().display[0] == "─▸✓       "
