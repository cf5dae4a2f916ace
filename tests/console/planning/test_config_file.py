"""Files that are named as a model's: read where they can be, never waited for."""

import json
import os
from pathlib import Path

import pytest
from infer_console.planning.config_file import MOST_BYTES, read_config
from infer_engine.planner import PlanError

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}


def test_a_file_and_the_directory_it_is_in_are_one_model(tmp_path: Path) -> None:
    directory = tmp_path / "my-model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    shape = read_config(str(directory)).shape
    assert shape == read_config(str(directory / "config.json")).shape
    assert (shape.name, shape.parameters) == ("my-model", 596_049_920)


def test_the_home_directory_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "small.json").write_text(json.dumps(CONFIG))
    assert read_config("~/small.json").shape.name == "small"


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 100_000])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(PlanError, match="it is no JSON"):
        read_config(str(path))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe\xfd" * 9)
    with pytest.raises(PlanError):
        read_config(str(path))


def test_a_path_without_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none.json: No such file"):
        read_config(str(tmp_path / "none.json"))
    with pytest.raises(PlanError):
        read_config("a\0b")


def test_large_files_and_pipes_are_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_text(" " * (MOST_BYTES + 1))
    with pytest.raises(PlanError, match="more than 1,048,576 bytes"):
        read_config(str(large))
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(PlanError, match="a plain file is wanted"):
        read_config(str(pipe))
