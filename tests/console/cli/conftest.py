import pytest
from infer_console.cli import main
from support.cli import Result, Run
from support.server import EngineServer


@pytest.fixture
def run(engine: EngineServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("INFER_CONSOLE_CONNECT", engine.control_url)

    def run(*words: str) -> Result:
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        return Result(code, *capsys.readouterr())

    return run
