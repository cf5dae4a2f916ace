"""A real server that the tests of this folder share, and a control API in this process for what needs no
replica."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from infer_engine.control.audit import Audit
from infer_engine.control.audit_files import AuditFiles
from infer_engine.control.context import Context
from infer_engine.control.operations import Operations
from infer_engine.control.traffic import Injector
from infer_engine.fleet.fleet import Fleet
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.protocol import GatewayStatus
from infer_engine.settings import ServerSettings
from support.eventually import eventually
from support.served import Served
from support.server import UNHURRIED, EngineServer, serving, short_directory
from support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="package")
def shared_pair() -> Generator[EngineServer]:
    """Two replicas, each with a pool of 128 blocks and a batch of 6. The tests' prompts begin alike: with a
    prefix cache they would share the blocks that these tests want to fill."""
    replica = {"kv_blocks": 128, "max_running": 6, "prefix_cache": False}
    with serving(replicas=2, layers=UNHURRIED, replica=replica) as running:
        yield running
        assert running.errors == []


@pytest.fixture
def pair(shared_pair: EngineServer) -> EngineServer:
    """Both replicas are in service, and nothing of an earlier test runs there any more: that a client left is
    noticed a moment later."""

    def is_idle() -> bool:
        shown = shared_pair.status().replicas
        return not any(each.running or each.waiting or each.kv.used for each in shown)

    with shared_pair.control() as client:
        for replica in shared_pair.status().replicas:
            if replica.state in ("draining", "drained"):  # left so by a test that failed
                client.post(f"/control/v1/replicas/{replica.id}:undrain").raise_for_status()
    shared_pair.wait_ready()
    eventually(is_idle)
    return shared_pair


@pytest.fixture
def server(pair: EngineServer) -> Generator[EngineServer]:
    """The same server with r0 alone in service."""
    with pair.control() as client:
        assert client.post("/control/v1/replicas/r1:drain").status_code == 200
        yield pair
        assert client.post("/control/v1/replicas/r1:undrain").status_code == 200


@pytest.fixture(scope="package")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))


@pytest.fixture
def directory() -> Generator[Path]:
    with short_directory() as path:
        yield path


@pytest.fixture
async def context(tokenizer: Tokenizer, directory: Path) -> AsyncGenerator[Context]:
    """A server's parts around a fleet that was not started: its feed and its documents are real, its replicas
    load for ever."""
    fleet = Fleet(ServerSettings(replicas=2), run_dir=directory / "run")
    operations = Operations(lambda: 1.0, lambda _: None)
    audit = Audit(AuditFiles(directory / "audit"))
    yield Context(
        fleet=fleet,
        tokenizer=tokenizer,
        operations=operations,
        injector=Injector(fleet, tokenizer, operations, 2048),
        gateway_status=GatewayStatus,
        server_version="test",
        audit=audit,
    )
    await audit.close()
    await operations.close()


@pytest.fixture
async def served(context: Context, directory: Path) -> AsyncGenerator[Served]:
    served = Served(context, directory / "c.sock")
    await served.listener.start()
    yield served
    context.stopping.set()
    await served.listener.close()
