from collections.abc import Iterator
from pathlib import Path

import pytest
from infer_engine.runner.runner import Runner
from support.running import make_runner
from support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def tiny_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFER_CONSOLE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def runner(tiny_path: Path, tiny_cache: None) -> Iterator[Runner]:
    runner = make_runner(model=str(tiny_path), dtype="fp32", kv_blocks=128, block_size=4, host_blocks=40)
    yield runner
    runner.close()
