import json
from pathlib import Path

import pytest
from infer_engine.benchmark.machine import describe, file_name
from infer_engine.benchmark.parts import PARTS
from infer_engine.benchmark.results import (
    Document,
    DocumentError,
    Result,
    compared,
    encode,
    merged,
    read,
    result,
    write,
)
from infer_engine.benchmark.run import choose
from infer_engine.benchmark.table import cells, text_table

#: What scripts may rely on.
KEYS = {"measure", "value", "unit", "against", "ratio", "wanted", "met"}


def test_the_document_has_the_keys_that_scripts_rely_on() -> None:
    made = merged(
        Document(), {"cpu": "c"}, "p", [result("m", "s", [1.0]), compared("n", "s", [2.0], "x", 4.0)]
    )
    document = json.loads(encode(made))
    assert document["version"] == 1
    assert document["machine"] == {"cpu": "c"}
    assert all(each.keys() >= KEYS for each in document["results"])
    assert document["results"][0]["ratio"] is None
    assert document["results"][1]["ratio"] == 0.5


def test_a_part_measured_again_replaces_what_it_said_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "results" / "m.json"
    write(path, merged(Document(), {}, "a", [result("one", "s", [1.0]), result("two", "s", [1.0])]))
    write(path, merged(read(path), {}, "b", [result("three", "s", [3.0])]))
    write(path, merged(read(path), {}, "a", [result("one", "s", [9.0])]))
    assert [(each.measure, each.value) for each in read(path).results] == [("three", 3.0), ("one", 9.0)]
    assert [found.name for found in path.parent.iterdir()] == ["m.json"]


def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    for content in ("no json", '{"version": 2}', '{"results": [{}]}'):
        path.write_text(content)
        with pytest.raises(DocumentError, match=str(path)):
            read(path)
        assert path.read_text() == content
    assert read(tmp_path / "none.json") == Document()


def test_unknown_is_neither_met_nor_missed() -> None:
    made = compared("m", "s", [1.0], "peer", None, wanted=3.0)
    assert (made.ratio, made.met) == (None, None)
    assert cells(made)[5] == "–×"
    assert "NO" in text_table([result("m", "s", [1.0], wanted=3.0)])


def test_the_machine_is_described_without_saying_whose_it_is() -> None:
    machine = describe()
    assert machine["cores"] >= 1
    assert "torch" in machine["packages"]
    name = file_name({"cpu": "AMD EPYC (v4)", "cores": 2, "flags": ["avx512f"]})
    assert name == "amd-epyc-v4-avx512-2-cores.json"


def test_parts_are_chosen_by_name_in_the_order_given_and_once() -> None:
    assert [part.name for part in choose(PARTS, "start, chunked,start")] == ["start", "chunked"]
    assert choose(PARTS, None) == list(PARTS)
    with pytest.raises(ValueError, match="'nope' is no part; allowed: workload"):
        choose(PARTS, "nope")


def test_samples_survive_writing(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(path, Document(results=[Result(measure="m", value=1.0, unit="s", samples=(1.0, 2.0))]))
    assert read(path).results[0].samples == (1.0, 2.0)
