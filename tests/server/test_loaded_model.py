"""What the server reads of a model: enough to tokenize, and its limits."""

from pathlib import Path

import pytest
from infer_engine.fleet.views import model_name
from infer_engine.loaded_model import load_model
from infer_engine.model.errors import ModelUnsupported
from infer_engine.settings import ReplicaSettings, ServerSettings
from support.tiny_families import TinyFamily, write_hf
from support.tiny_tokenizers import QWEN, write_tokenizer


def settings(model: str) -> ServerSettings:
    return ServerSettings(replica=ReplicaSettings(model=model))


async def test_a_directory_is_served_under_its_name(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "Qwen2.5-tiny", TinyFamily(name="q", family="qwen2", vocabulary=400))
    write_tokenizer(path, QWEN)
    model = await load_model(settings(f"{path}/"))
    assert (model.name, model.context_length) == ("Qwen2.5-tiny", 128)
    assert model.tokenizer.has_chat_template


async def test_a_directory_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "m", TinyFamily(name="m"))
    (path / "config.json").write_text('{"model_type": "mixtral"}')
    with pytest.raises(ModelUnsupported, match=r"m/config.json: model_type is 'mixtral'"):
        await load_model(settings(str(path)))


def test_a_model_is_called_by_its_name() -> None:
    names = {
        "smollm2-135m-instruct": "smollm2-135m-instruct",
        "/models/mine.gguf": "mine",
        "mine.gguf": "mine",
        "/models/Llama-3.2-1B/": "Llama-3.2-1B",
        "models/Llama-3.2-1B": "Llama-3.2-1B",
    }
    assert {given: model_name(given) for given in names} == names
