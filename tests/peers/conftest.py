"""Real vLLM and llama.cpp servers, started once. Only for those who name this folder: ``make test-peers``."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))

from support.cli import Run, runner  # noqa: E402 - bench comes first
from support.peer import Peer, starting  # noqa: E402


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The servers take minutes and gigabytes: the suite as a whole does without."""
    del collection_path
    named = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
    return None if any(path.resolve().is_relative_to(HERE) for path in named) else True


@pytest.fixture(scope="session")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Generator[Peer]:
    with starting("llamacpp", tmp_path_factory.mktemp("llamacpp")) as peer:
        yield peer


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Generator[Peer]:
    with starting("vllm", tmp_path_factory.mktemp("vllm")) as peer:
        yield peer


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Peer:
    """The one that a test is parametrized with, by name."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def console() -> Path:
    """The installed ``infer-console`` of this environment."""
    return Path(sys.executable).parent / "infer-console"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)
