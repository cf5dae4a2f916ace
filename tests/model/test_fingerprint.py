"""Whether two machines have the same model, told by reading a little of it."""

from pathlib import Path

import pytest
from infer_engine.model.fingerprint import difference, fingerprint
from infer_engine.model.source import open_source
from support.tiny_model import write_tiny_gguf


def of(path: Path) -> dict[str, str]:
    return fingerprint(open_source(path))


def test_the_same_file_is_the_same_model_wherever_it_lies(tmp_path: Path) -> None:
    ours = of(write_tiny_gguf(tmp_path / "a.gguf"))
    (tmp_path / "elsewhere").mkdir()
    assert difference(ours, of(write_tiny_gguf(tmp_path / "elsewhere" / "b.gguf"))) is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"seed": 1}, "its weights differ"),
        ({"layers": 3}, "its layers is '3' instead of '2'"),
        ({"context_length": 1024}, "its context_length is '1024' instead of '2048'"),
        ({"chat_template": "{{ messages }}"}, "its tokenizer differs"),
        ({"tensor_type": "F16"}, "its weights differ"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, other: dict[str, object], why: str) -> None:
    ours = of(write_tiny_gguf(tmp_path / "a.gguf"))
    theirs = of(write_tiny_gguf(tmp_path / "b.gguf", **other))  # type: ignore[arg-type]
    assert difference(ours, theirs) == why


def test_what_is_not_told_differs() -> None:
    assert difference({"layers": "2"}, {}) == "its layers is 'not told' instead of '2'"
