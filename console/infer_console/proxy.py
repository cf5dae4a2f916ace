"""Joins stdin and stdout to a unix socket: the far end of ``ssh://``."""

import contextlib
import os
import socket
import sys
import threading

#: What the proxy says once it has the socket, so that the near end knows where a login's words end.
GREETING = b"infer-console proxy 1"
CONNECT_TIMEOUT_S = 5.0
CHUNK_BYTES = 64 * 1024
#: How long the socket may go on after stdin ended.
LINGER_S = 5.0


def join(path: str, *, greet: bool) -> None:
    """Until the socket or stdout ends; OSError when the socket cannot be reached."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_TIMEOUT_S)
        sock.connect(path)
        sock.settimeout(None)
        output = sys.stdout.fileno()
        if greet:
            _write_all(output, GREETING + b"\n")
        threading.Thread(target=_send, args=(sys.stdin.fileno(), sock), daemon=True).start()
        with contextlib.suppress(OSError):  # one of the two sides is gone, and so is our use
            while data := sock.recv(CHUNK_BYTES):
                _write_all(output, data)


def _send(source: int, sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(source, CHUNK_BYTES):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        # Whoever asked is gone: what is still answered is answered soon, or to nobody.
        sock.settimeout(LINGER_S)
    timer = threading.Timer(LINGER_S, os._exit, [0])
    timer.daemon = True
    timer.start()


def _write_all(output: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(output, view) :]
