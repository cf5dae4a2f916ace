"""A tiny model, and a cache directory of the test's own."""

from pathlib import Path

import pytest
from infer_engine.model.tokenizer import Tokenizer
from support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_path: Path) -> Tokenizer:
    return Tokenizer.from_file(tiny_path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("INFER_CONSOLE_CACHE", str(path))
    return path
