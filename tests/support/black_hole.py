"""A TCP port in front of a server's unix socket, and a network between the two that can be cut: nothing is
refused or ended then, nothing comes through either; afterwards what was on the way arrives."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 16
POLL_S = 0.1


class BlackHole:
    """Use as a context manager. ``url`` is what a console connects to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._through = threading.Event()
        self._through.set()
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(POLL_S)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        #: Connections that were taken.
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, name="black-hole", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._through.set()
        self._thread.join(10)
        self._listener.close()
        for each in self._sockets:
            each.close()

    def cut(self) -> None:
        self._through.clear()

    def heal(self) -> None:
        self._through.set()

    def _accept(self) -> None:
        """A connection that is made while the network is cut stays in the backlog, as a SYN on its way."""
        while not self._over.is_set():
            self._through.wait(POLL_S)
            if not self._through.is_set():
                continue
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._path)
            except OSError:  # no server there: refused, as a port without one would
                near.close()
                far.close()
                continue
            near.settimeout(None)
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pump, args=(source, sink), name="black-hole-pump", daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # one of the two has gone
            while data := source.recv(READ_BYTES):
                self._through.wait()
                if self._over.is_set():
                    return
                sink.sendall(data)
        self._through.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
