import threading
from collections.abc import Generator

import pytest
from support.cli import Run, runner
from support.server import EngineServer


@pytest.fixture
def run(engine: EngineServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("INFER_CONSOLE_CONNECT", engine.control_url)

    return runner(capsys)


@pytest.fixture
def client(engine: EngineServer) -> Generator[None]:
    """Somebody who asks for long answers until the test is over."""
    leave = threading.Event()

    def ask() -> None:
        body = {"model": "tiny", "prompt": "hi", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        with engine.gateway() as http:
            while not leave.is_set():
                with http.stream("POST", "/v1/completions", json=body) as response:
                    for _ in response.iter_bytes():
                        if leave.is_set():
                            break

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join(60)
        assert not thread.is_alive()
