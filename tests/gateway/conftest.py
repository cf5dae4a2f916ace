import logging
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio
from infer_engine.gateway.settings import GatewaySettings
from infer_engine.model.tokenizer import Tokenizer
from support.gateway import Gateway, serve_gateway
from support.gateway_on_fleet import CONTEXT_LENGTH as SERVED_CONTEXT_LENGTH
from support.gateway_on_fleet import Served, serve_fleet
from support.tiny_model import write_tiny_gguf

CONTEXT_LENGTH = 2048


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return Tokenizer.from_file(write_tiny_gguf(path, context_length=CONTEXT_LENGTH))


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared_gateway(tokenizer: Tokenizer) -> AsyncGenerator[Gateway]:
    settings = GatewaySettings(patience_s=5.0)
    async with serve_gateway(tokenizer, context_length=CONTEXT_LENGTH, settings=settings) as served:
        yield served


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    """One server for all tests, a fresh fleet for each."""
    shared_gateway.fleet.forget()
    return shared_gateway


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    model = write_tiny_gguf(path, context_length=SERVED_CONTEXT_LENGTH)
    async with serve_fleet(model, Tokenizer.from_file(model)) as everything:
        yield everything


@pytest.fixture
def bounds() -> GatewaySettings:
    """Overridden where a test needs other bounds, and so a server of its own."""
    return GatewaySettings()


@pytest_asyncio.fixture(loop_scope="session")
async def bounded_gateway(tokenizer: Tokenizer, bounds: GatewaySettings) -> AsyncGenerator[Gateway]:
    async with serve_gateway(tokenizer, context_length=CONTEXT_LENGTH, settings=bounds) as served:
        yield served


@pytest.fixture(autouse=True)
def no_errors_logged(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """Nothing that a client does is an error of ours."""
    caplog.set_level(logging.WARNING)
    yield
    errors = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not errors, [record.getMessage() for record in errors]
