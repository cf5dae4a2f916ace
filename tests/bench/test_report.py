"""What `make bench` makes of figures: comparisons, the page and its plot."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from compare import comparisons
from infer_engine.benchmark.batching import measure_name
from infer_engine.benchmark.results import Document, Result, compared, merged, result
from infer_engine.benchmark.served import ALONE, USEFUL
from peers.parts import LLAMACPP, STATIC
from plot import Line, log_plot
from report import BEGIN, END, write_report

MACHINE = {
    "cpu": "some <CPU> & more",
    "cores": 2,
    "flags": ["avx2"],
    "packages": {"torch": "2"},
    "peers": {"x": "1"},
}
SVG = "{http://www.w3.org/2000/svg}"


def document() -> Document:
    made = merged(Document(), MACHINE, "workload", [result(USEFUL, "tokens/s", [90, 100, 120])])
    made = merged(made, MACHINE, "llamacpp", [result(USEFUL, "tokens/s", [80.0], subject=LLAMACPP)])
    batching = [
        compared(measure_name(batch), "tokens/s", [30.0 * batch], "roofline", 60.0 * batch)
        for batch in (1, 2, 4)
    ]
    return merged(made, MACHINE, "batching", batching)


def test_ours_is_compared_with_every_peer_and_unknown_where_it_was_not_measured() -> None:
    by_peer: dict[str | None, Result] = {
        each.against: each for each in comparisons(document()) if each.measure == USEFUL
    }
    assert (by_peer[LLAMACPP].ratio, by_peer[LLAMACPP].met) == (1.25, True)
    assert (by_peer[STATIC].ratio, by_peer[STATIC].met) == (None, None)
    assert not [each for each in comparisons(document()) if each.measure == ALONE]


def test_the_page_keeps_what_people_wrote_and_the_plot_is_well_formed(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"above\n\n{BEGIN}\nold\n{END}\n\nbelow\n")
    written = write_report(document(), tmp_path)
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "old" not in text
    assert "| useful tokens/s on the workload | llama.cpp server | 80 tokens/s |" in text
    write_report(document(), tmp_path)
    assert page.read_text() == text
    plot = ElementTree.parse(written[1]).getroot()
    assert len(plot.findall(f"{SVG}circle")) == 3
    assert len(plot.findall(f"{SVG}polyline")) == 2


def test_a_page_without_a_place_for_figures_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("mine")
    with pytest.raises(ValueError, match="no part between"):
        write_report(document(), tmp_path)
    assert (tmp_path / "performance.md").read_text() == "mine"


def test_points_stay_inside_the_plot_and_text_is_escaped() -> None:
    svg = log_plot("a < b & c", "x", "y", [1, 32], [Line("l", "red", [(1, 0.7), (32, 930.0)])])
    plot = ElementTree.fromstring(svg)
    width, height = (float(value) for value in plot.attrib["viewBox"].split()[2:])
    for circle in plot.findall(f"{SVG}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height
    assert any(text.text == "a < b & c" for text in plot.findall(f"{SVG}text"))
