"""A server that is not ours, on a real port of this machine: it says what a test tells it to, or hangs."""

import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGES = Path(__file__).parents[1] / "console/sources/foreign/pages"


def page(name: str) -> bytes:
    return (PAGES / name).read_bytes()


def vllm_pages(moment: str) -> dict[str, bytes]:
    return {
        "/metrics": page(f"vllm-{moment}.metrics"),
        "/health": b"",
        "/version": page("vllm.version"),
        "/v1/models": page("vllm.models"),
    }


def llamacpp_pages(moment: str) -> dict[str, bytes]:
    return {
        "/metrics": page(f"llamacpp-{moment}.metrics"),
        "/slots": page(f"llamacpp-{moment}.slots"),
        "/props": page("llamacpp.props"),
        "/health": b'{"status":"ok"}',
    }


@dataclass
class ForeignServer:
    """``pages`` are answered with 200, everything else with 404, or with what ``statuses`` says."""

    pages: dict[str, bytes]
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    #: What it was called by those who asked.
    hosts: set[str | None] = field(default_factory=set[str | None])
    keys: set[str | None] = field(default_factory=set[str | None])
    #: What POSTs are answered with, by path, and what was sent with them.
    posted: dict[str, bytes] = field(default_factory=dict[str, bytes])
    bodies: list[bytes] = field(default_factory=list[bytes])
    #: While it is clear nothing is answered.
    answering: threading.Event = field(default_factory=threading.Event)


@contextmanager
def foreign_server(
    pages: dict[str, bytes], port: int = 0, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Generator[ForeignServer]:
    server = ForeignServer(pages)
    server.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(f"GET {self.path}")
            server.hosts.add(self.headers.get("host"))
            server.keys.add(self.headers.get("authorization"))
            server.answering.wait(30)
            status = server.statuses.get(self.path, 200 if self.path in server.pages else 404)
            body = server.pages.get(self.path, b"{}")
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return  # who asked has left

        def do_POST(self) -> None:
            server.asked.append(f"POST {self.path}")
            server.bodies.append(self.rfile.read(int(self.headers.get("content-length", "0"))))
            body = server.posted.get(self.path)
            if body is None:
                self.send_error(server.statuses.get(self.path, 500))
                return
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    http = ThreadingHTTPServer((host, port), Handler)
    http.daemon_threads = True
    if tls is not None:  # the handshake is the handler's thread's: one that fails is nobody else's
        http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
        http.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        server.answering.set()
        http.shutdown()
        thread.join()
        http.server_close()
