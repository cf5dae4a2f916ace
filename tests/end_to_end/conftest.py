"""One server on the real default model, which ``make model`` fetched before the suite."""

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.server import EngineServer, short_directory

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def real_server() -> Generator[EngineServer]:
    """Two replicas of SmolLM2-135M-Instruct, the user's own cache, the default weights path."""
    with short_directory() as directory:
        server = EngineServer(
            directory,
            {"replicas": 2, "replica": {"kv_blocks": 256, "threads": 1}},
            cache=None,
        )
        try:
            server.wait_listening()
            server.wait_ready()
            yield server
        finally:
            server.stop()


@pytest.fixture
def console() -> Path:
    """The installed ``infer-console`` of this environment."""
    return Path(sys.executable).parent / "infer-console"
