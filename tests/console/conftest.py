"""One real engine server for all of the console's tests: two replicas of a tiny model. A test leaves it as it
was."""

from collections.abc import Generator

import pytest
from support.server import UNHURRIED, EngineServer, serving


@pytest.fixture(scope="session")
def engine() -> Generator[EngineServer]:
    with serving(replicas=2, layers=UNHURRIED) as server:
        yield server
        assert server.errors == []
