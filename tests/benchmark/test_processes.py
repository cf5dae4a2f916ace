"""A server under measurement ends with everything that it started, and says why it did not start."""

import os
import signal
import subprocess
import sys

import pytest
from infer_engine.benchmark.errors import BenchError
from infer_engine.benchmark.processes import ServerProcess, cpu_seconds, free_port
from support.processes import wait_gone

#: Starts a child that ignores its end, tells its number through a port, and serves nothing else.
STUBBORN = """
import http.server, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(child.pid).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


#: Measures a server that would run for ever, and says which process it is.
MEASURING = """
import sys, time
from infer_engine.benchmark.processes import ServerProcess, end_tidily
end_tidily()
with ServerProcess([sys.executable, "-c", sys.argv[2]], lifeline=sys.argv[1] == "lifeline") as process:
    print(process.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("kind", "number", "server"),
    [
        ("plain", signal.SIGTERM, "import signal; signal.pause()"),
        ("lifeline", signal.SIGKILL, "import sys; sys.stdin.read()"),
    ],
)
def test_a_measurement_that_is_ended_leaves_no_server(kind: str, number: int, server: str) -> None:
    command = [sys.executable, "-c", MEASURING, kind, server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as measuring:
        assert measuring.stdout is not None
        pid = int(measuring.stdout.readline())
        measuring.send_signal(number)
        measuring.wait(60)
    assert wait_gone([pid]) == []


def test_children_end_with_their_server() -> None:
    import httpx2

    port = free_port()
    with ServerProcess([sys.executable, "-c", STUBBORN, str(port)]) as process:
        process.wait_until_ok(f"http://127.0.0.1:{port}/", 60.0)
        child = int(httpx2.get(f"http://127.0.0.1:{port}/", trust_env=False).text)
        assert cpu_seconds(process.pid) >= 0
        family = [process.pid, child]
    assert wait_gone(family) == []


def test_a_server_that_ends_says_what_it_wrote() -> None:
    code = "import sys; print('no such model', file=sys.stderr); sys.exit(3)"
    with (
        ServerProcess([sys.executable, "-c", code]) as process,
        pytest.raises(BenchError, match=r"ended with 3:\nno such model"),
    ):
        process.wait_until_ok(f"http://127.0.0.1:{free_port()}/", 60.0)


def test_a_server_that_never_answers_is_ended() -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with ServerProcess(command) as process, pytest.raises(BenchError, match="not ready after"):
        process.wait_until_ok(f"http://127.0.0.1:{free_port()}/", 0.3)
    assert wait_gone([process.pid]) == []
    with pytest.raises(BenchError, match="tells nothing"):
        cpu_seconds(process.pid)
    assert os.getpid() != process.pid
