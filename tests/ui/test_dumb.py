"""A terminal that cannot draw gets one status as plain text, and is told so."""

import sys

import pytest
from support.server import EngineServer, serving
from support.terminal import Terminal

pytestmark = pytest.mark.terminal


@pytest.fixture(scope="module")
def server():
    with serving(simulate="llama-70b@4×h100", replicas=2) as made:
        yield made


def console(*words: str, term: str = "dumb") -> Terminal:
    code = "import sys; from infer_console.cli import main; sys.exit(main())"
    return Terminal([sys.executable, "-c", code, *words], columns=100, rows=30, env={"TERM": term})


def test_one_status_and_no_escape_sequence(server: EngineServer) -> None:
    with console("--connect", server.control_url) as terminal:
        assert terminal.wait_exit() == 0
        terminal_text = bytes(terminal.raw)
        assert b"\x1b" not in terminal_text
        assert b"TERM=dumb cannot draw the console; this is one status" in terminal_text
        assert b"r0" in terminal_text
        assert b"r1" in terminal_text
