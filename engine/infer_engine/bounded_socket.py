"""A listening socket that turns connections away at once when too many are open, those in the middle of a TLS
handshake included: nothing else counts those."""

import socket
from typing import Any


class BoundedSocket(socket.socket):
    """Takes the place of a bound socket, which must not be used any more. ``accept`` raises
    ConnectionAbortedError for a connection beyond ``most``, which asyncio's listener passes over."""

    def __init__(self, bound: socket.socket, most: int) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self.setblocking(False)
        self._most = most
        self._taken: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        taken, address = super().accept()
        if len(self._taken) >= self._most:
            self._taken = [each for each in self._taken if each.fileno() != -1]
        if len(self._taken) >= self._most:
            taken.close()
            raise ConnectionAbortedError("too many connections")
        self._taken.append(taken)
        return taken, address
