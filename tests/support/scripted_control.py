"""A control API that says exactly what a test tells it to, gaps and garbage included, over a real unix
socket.

``scripts`` holds, for each watch connection in turn, the raw SSE text to send; after the last one the
connection is held open, or closed when the script ends with ``CLOSE``.
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import msgspec
from infer_engine.protocol import Delta, Envelope, Fleet, Hello

CLOSE = "close"
HELLO = Hello(
    server_version="9.9", epoch="e1", capabilities=["watch"], fleet=Fleet(name="scripted", model="m")
)


def sse(*deltas: Delta, first_prev: int = 0, start: int = 1) -> str:
    """The deltas as a well-formed run of messages."""
    out = ""
    prev = first_prev
    for seq, delta in enumerate(deltas, start):
        envelope = Envelope(epoch="e1", seq=seq, prev=prev, at=0.0, delta=delta)
        out += f"id: e1:{seq}\ndata: {msgspec.json.encode(envelope).decode()}\n\n"
        prev = seq
    return out


class ScriptedControl:
    """``paths`` lists the requests that came; ``hello`` may be replaced by any bytes."""

    def __init__(self, scripts: Sequence[str]) -> None:
        self.scripts = list(scripts)
        self.hello: bytes = msgspec.json.encode(HELLO)
        self.paths: list[str] = []
        self.stopping = threading.Event()


@contextmanager
def scripted_control(socket_path: Path, scripts: Sequence[str]) -> Generator[ScriptedControl]:
    control = ScriptedControl(scripts)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            control.paths.append(self.path)
            if "/hello" in self.path:
                self._answer("application/json", control.hello)
            elif "/watch" in self.path:
                script = control.scripts.pop(0) if control.scripts else ""
                self._answer("text/event-stream", script.removesuffix(CLOSE).encode())
                self.wfile.flush()
                if not script.endswith(CLOSE):
                    control.stopping.wait(30)
            else:
                self.send_error(404)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()  # HTTP/1.0: the body ends with the connection
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    class Server(ThreadingUnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that left while it was written to is no news."""

    server = Server(str(socket_path), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield control
    finally:
        control.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join(60)
